package planner

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// The policies of the tables, by their kinds. evening is open at t0 and closes an hour later,
// night opens then.
var (
	ask     = v1alpha1.AutoscalerPolicy{Name: "ask", Webhook: &v1alpha1.WebhookPolicy{}}
	load    = v1alpha1.AutoscalerPolicy{Name: "load", ActivePlayers: &v1alpha1.ActivePlayersPolicy{}}
	spare   = v1alpha1.AutoscalerPolicy{Name: "spare", Buffer: &v1alpha1.BufferPolicy{Servers: new(intstr.FromInt32(2))}}
	evening = v1alpha1.AutoscalerPolicy{Name: "evening", Schedule: &v1alpha1.SchedulePolicy{TimeWindow: v1alpha1.TimeWindow{Cron: "0 11 * * *", Duration: metav1.Duration{Duration: 2 * time.Hour}}, Replicas: 6}}
	night   = v1alpha1.AutoscalerPolicy{Name: "night", Schedule: &v1alpha1.SchedulePolicy{TimeWindow: v1alpha1.TimeWindow{Cron: "0 13 * * *", Duration: metav1.Duration{Duration: 2 * time.Hour}}, Replicas: 3}}
	usual   = v1alpha1.AutoscalerPolicy{Name: "usual", Forecast: &v1alpha1.ForecastPolicy{}}
	broken  = v1alpha1.AutoscalerPolicy{Name: "broken", Schedule: &v1alpha1.SchedulePolicy{TimeWindow: v1alpha1.TimeWindow{Cron: "0 13 * *", Duration: metav1.Duration{Duration: time.Hour}}, Replicas: 3}}
)

func waking(p v1alpha1.AutoscalerPolicy) v1alpha1.AutoscalerPolicy {
	s := *p.Schedule
	s.Wake, p.Schedule = true, &s
	return p
}

// fast is a spec from 1 to 10 whose behavior makes nothing wait.
func fast(policies ...v1alpha1.AutoscalerPolicy) v1alpha1.GameAutoscalerSpec {
	return v1alpha1.GameAutoscalerSpec{
		MaxReplicas: 10, Policies: policies,
		Behavior: v1alpha1.AutoscalerBehavior{ScaleDown: v1alpha1.AutoscalerScaleDown{Cooldown: seconds(0), StabilizationWindow: seconds(0)}},
	}
}

func changed(spec v1alpha1.GameAutoscalerSpec, change func(*v1alpha1.GameAutoscalerSpec)) v1alpha1.GameAutoscalerSpec {
	change(&spec)
	return spec
}

func answered(o Observed, replicas int64) Observed {
	o.Answers = map[string]Answer{"ask": {Replicas: replicas}}
	return o
}

func failedToAnswer(o Observed) Observed {
	o.Answers = map[string]Answer{"ask": {Reason: "Timeout", Message: "No answer within 5s."}}
	return o
}

// expecting is a history by which the forecast "usual" expects 4 Servers' players at t0.
func expecting() History {
	w := weekly{Room: 10}
	w.Peaks[24+12] = [weeks]uint16{41, 41}
	return History{weeks: map[string]weekly{"usual": w}}
}

// decision is what tables compare of a plan. A wish of -1 is none.
type decision struct {
	Desired              int32
	Wishes               string
	Active, Able, Limits string
	Requeue              time.Duration
	KeepAwake            time.Duration
}

func decisionOf(p Plan) decision {
	var wishes []string
	for _, w := range p.wishes {
		o := outcomeOf(w)
		wishes = append(wishes, fmt.Sprintf("%s %d %s", w.policy, o.Replicas, o.Reason))
	}
	d := decision{
		Desired: p.Desired, Wishes: strings.Join(wishes, ", "), Requeue: p.RequeueAfter.Duration(),
		Active: brief(p.active), Able: brief(p.able), Limits: brief(p.limited),
	}
	if !p.KeepAwake.IsZero() {
		d.KeepAwake = p.KeepAwake.Sub(t0)
	}
	return d
}

func brief(c verdict) string { return string(c.status) + " " + c.reason }

const (
	evaluated = "True " + reasons.PoliciesEvaluated
	ready     = "True " + reasons.ReadyToScale
	heldUp    = "True " + reasons.ScaleDownHeld
	within    = "False " + reasons.WithinBounds
	atMost    = "True " + reasons.TooManyReplicas
	atLeast   = "True " + reasons.TooFewReplicas
	stepped   = "True " + reasons.StepLimited
	sleeping  = "Unknown " + reasons.Asleep
)

func TestThePlan(t *testing.T) {
	const every = 30 * time.Second
	asleep := Observed{Fresh: true}
	for name, test := range map[string]struct {
		spec     v1alpha1.GameAutoscalerSpec
		history  History
		observed Observed
		want     decision
	}{
		"a webhook asks for more": {
			spec: fast(ask), observed: answered(awake(3), 5),
			want: decision{5, "ask 5 WebhookAnswered", evaluated, ready, within, every, 0},
		},
		"a webhook asks for fewer": {
			spec: fast(ask), observed: answered(awake(3), 2),
			want: decision{2, "ask 2 WebhookAnswered", evaluated, ready, within, every, 0},
		},
		"a webhook wants no change": {
			spec: fast(ask), observed: awake(3).with(func(o *Observed) { o.Answers = map[string]Answer{"ask": {Keep: true, Replicas: 9}} }),
			want: decision{3, "ask 3 WebhookKeeps", evaluated, ready, within, every, 0},
		},
		"a webhook asks for none": {
			spec: fast(ask), observed: answered(awake(3), 0),
			want: decision{1, "ask 0 WebhookAnswered", evaluated, ready, atLeast, every, 0},
		},
		"a webhook asks for less than none": {
			spec: fast(ask), observed: answered(awake(3), math.MinInt64),
			want: decision{1, "ask 0 WebhookAnswered", evaluated, ready, atLeast, every, 0},
		},
		"a webhook asks for far too many": {
			spec: fast(ask), observed: answered(awake(3), math.MaxInt64),
			want: decision{10, "ask 10000 WebhookAnswered", evaluated, ready, atMost, every, 0},
		},
		"a webhook fails": {
			spec: fast(ask), observed: failedToAnswer(awake(3)),
			want: decision{3, "ask -1 Timeout", "False Timeout", ready, within, every, 0},
		},
		"a webhook was not asked yet": {
			spec: fast(ask), observed: awake(3),
			want: decision{3, "ask -1 WebhookNotAnswered", "False WebhookNotAnswered", ready, within, every, 0},
		},
		"a webhook fails, and the load is low": {
			spec: fast(ask, load), observed: failedToAnswer(awake(3).plays(0)),
			want: decision{3, "ask -1 Timeout, load 2 LoadLow", "False Timeout", heldUp, within, every, 0},
		},
		"a webhook fails, and the load is high": {
			spec: fast(ask, load), observed: failedToAnswer(awake(3).plays(30)),
			want: decision{4, "ask -1 Timeout, load 4 LoadHigh", "False Timeout", ready, within, every, 0},
		},
		"a webhook fails, and there are more than there may be": {
			spec: fast(ask), observed: failedToAnswer(awake(12)),
			want: decision{10, "ask -1 Timeout", "False Timeout", ready, atMost, every, 0},
		},
		"the highest of all wishes": {
			spec: fast(ask, load, spare, evening), observed: answered(awake(3).plays(15), 4),
			want: decision{6, "ask 4 WebhookAnswered, load 3 LoadNormal, spare 5 BufferKept, evening 6 WindowOpen", evaluated, ready, within, every, 0},
		},
		"a window is open": {
			spec: fast(evening), observed: awake(2),
			want: decision{6, "evening 6 WindowOpen", evaluated, ready, within, time.Hour, 0},
		},
		"no window is open": {
			spec: fast(night), observed: awake(4),
			want: decision{1, "night -1 WindowClosed", evaluated, ready, within, time.Hour, 0},
		},
		"one window is open, and another one is not": {
			spec: fast(night, evening), observed: awake(6),
			want: decision{6, "night -1 WindowClosed, evening 6 WindowOpen", evaluated, ready, within, time.Hour, 0},
		},
		"a window needs no reports to close": {
			spec: fast(night), observed: awake(4).with(func(o *Observed) { o.Fresh = false }),
			want: decision{1, "night -1 WindowClosed", evaluated, ready, within, time.Hour, 0},
		},
		"a cron expression that is none": {
			spec: fast(broken), observed: awake(4),
			want: decision{4, "broken -1 ScheduleInvalid", "False ScheduleInvalid", ready, within, 0, 0},
		},
		"stale reports": {
			spec: fast(load, spare), observed: awake(4).plays(0).with(func(o *Observed) { o.Fresh = false; o.Empty = 4 }),
			want: decision{4, "load -1 ReportsStale, spare -1 ReportsStale", "False ReportsStale", ready, within, every, 0},
		},
		"stale reports, and a webhook asks for fewer": {
			spec: fast(ask), observed: answered(awake(4), 1).with(func(o *Observed) { o.Fresh = false }),
			want: decision{4, "ask 1 WebhookAnswered", evaluated, heldUp, within, every, 0},
		},
		"stale reports, and a webhook asks for more": {
			spec: fast(ask), observed: answered(awake(4), 7).with(func(o *Observed) { o.Fresh = false }),
			want: decision{7, "ask 7 WebhookAnswered", evaluated, ready, within, every, 0},
		},
		"an update, and a webhook asks for fewer": {
			spec: fast(ask), observed: answered(awake(4), 1).with(func(o *Observed) { o.Updating = true }),
			want: decision{4, "ask 1 WebhookAnswered", evaluated, heldUp, within, every, 0},
		},
		"an update, and a webhook asks for more": {
			spec: fast(ask), observed: answered(awake(4), 7).with(func(o *Observed) { o.Updating = true }),
			want: decision{7, "ask 7 WebhookAnswered", evaluated, ready, within, every, 0},
		},
		"the target is being deleted": {
			spec: fast(ask, evening), observed: answered(awake(4), 7).with(func(o *Observed) { o.Deleting = true }),
			want: decision{4, "", "False TargetDeleted", "Unknown TargetDeleted", "Unknown TargetDeleted", 0, 0},
		},
		"the target sleeps": {
			spec: fast(ask, load, spare, evening), observed: answered(asleep, 7),
			want: decision{0, "ask -1 Asleep, load -1 Asleep, spare -1 Asleep, evening -1 Asleep", "False Asleep", sleeping, sleeping, 0, 0},
		},
		"the target sleeps, and a window that wakes it is open": {
			spec: fast(ask, waking(evening)), observed: answered(asleep, 7),
			want: decision{6, "ask -1 Asleep, evening 6 WindowOpen", evaluated, sleeping, sleeping, time.Hour, time.Hour},
		},
		"the target sleeps, and a window that wakes it opens later": {
			spec: fast(ask, waking(night)), observed: answered(asleep, 7),
			want: decision{0, "ask -1 Asleep, night -1 WindowClosed", "False Asleep", sleeping, sleeping, time.Hour, 0},
		},
		"the target sleeps, and the schedule that would wake it can't be read": {
			spec: fast(waking(broken)), observed: asleep,
			want: decision{0, "broken -1 ScheduleInvalid", "False ScheduleInvalid", sleeping, sleeping, 0, 0},
		},
		"a forecast expects players": {
			spec: fast(usual), history: expecting(), observed: awake(2),
			want: decision{4, "usual 4 PlayersExpected", evaluated, ready, within, every, 0},
		},
		"a forecast expects players, and reports are stale": {
			spec: fast(usual), history: expecting(), observed: awake(6).with(func(o *Observed) { o.Fresh = false }),
			want: decision{4, "usual 4 PlayersExpected", evaluated, ready, within, every, 0},
		},
		"a forecast expects nobody": {
			spec: fast(usual), observed: awake(2),
			want: decision{1, "usual -1 ForecastLearning", evaluated, ready, within, every, 0},
		},
		"a forecast expects players, and may not wake the target": {
			spec: fast(usual), history: expecting(), observed: asleep,
			want: decision{0, "usual -1 Asleep", "False Asleep", sleeping, sleeping, 55 * time.Minute, 0},
		},
		"a forecast expects players, and may wake the target": {
			spec: fast(ask, v1alpha1.AutoscalerPolicy{Name: "usual", Forecast: &v1alpha1.ForecastPolicy{Wake: true}}), history: expecting(), observed: asleep,
			want: decision{4, "ask -1 Asleep, usual 4 PlayersExpected", evaluated, sleeping, sleeping, 55 * time.Minute, time.Hour},
		},
		"a wake for more than there may be": {
			spec: changed(fast(waking(evening)), func(s *v1alpha1.GameAutoscalerSpec) { s.MaxReplicas = 4 }), observed: asleep,
			want: decision{4, "evening 6 WindowOpen", evaluated, sleeping, sleeping, time.Hour, time.Hour},
		},
		"a wake for fewer than there must be": {
			spec: changed(fast(waking(evening)), func(s *v1alpha1.GameAutoscalerSpec) { s.MinReplicas = new(int32(8)) }), observed: asleep,
			want: decision{8, "evening 6 WindowOpen", evaluated, sleeping, sleeping, time.Hour, time.Hour},
		},
		"a window that wakes the target keeps it awake": {
			spec: fast(waking(evening)), observed: awake(6),
			want: decision{6, "evening 6 WindowOpen", evaluated, ready, within, time.Hour, time.Hour},
		},
		"a wake brought fewer than there must be": {
			spec: changed(fast(load), func(s *v1alpha1.GameAutoscalerSpec) {
				s.MinReplicas = new(int32(3))
				s.Behavior = v1alpha1.AutoscalerBehavior{}
			}),
			observed: Observed{Desired: 1, Current: 1, Fresh: true},
			want:     decision{3, "load 1 ServersNotReady", evaluated, ready, atLeast, every, 0},
		},
		"more than there may be": {
			spec:     changed(fast(load), func(s *v1alpha1.GameAutoscalerSpec) { s.Behavior = v1alpha1.AutoscalerBehavior{} }),
			observed: awake(15).plays(75), history: History{lastUp: at(-1)},
			want: decision{10, "load 15 LoadNormal", evaluated, ready, atMost, every, 0},
		},
		"a least above the most": {
			spec: changed(fast(load), func(s *v1alpha1.GameAutoscalerSpec) { s.MinReplicas = new(int32(20)) }), observed: awake(3).plays(15),
			want: decision{20, "load 3 LoadNormal", evaluated, ready, atLeast, every, 0},
		},
		"the cooldown after a way up": {
			spec:     changed(fast(ask), func(s *v1alpha1.GameAutoscalerSpec) { s.Behavior.ScaleUp.Cooldown = seconds(60) }),
			observed: answered(awake(3), 5), history: History{lastUp: at(-50)},
			want: decision{3, "ask 5 WebhookAnswered", evaluated, "True CoolingDown", within, 10 * time.Second, 0},
		},
		"the cooldown on the way down": {
			spec:     changed(fast(ask), func(s *v1alpha1.GameAutoscalerSpec) { s.Behavior.ScaleDown.Cooldown = nil }),
			observed: answered(awake(3), 1), history: History{lastUp: at(-50)},
			want: decision{3, "ask 1 WebhookAnswered", evaluated, "True CoolingDown", within, 10 * time.Second, 0},
		},
		"a step up": {
			spec:     changed(fast(ask), func(s *v1alpha1.GameAutoscalerSpec) { s.Behavior.ScaleUp.MaxStep = new(int32(2)) }),
			observed: answered(awake(3), 9),
			want:     decision{5, "ask 9 WebhookAnswered", evaluated, ready, stepped, every, 0},
		},
		"the next step waits for an interval": {
			spec:     changed(fast(ask), func(s *v1alpha1.GameAutoscalerSpec) { s.Behavior.ScaleUp.MaxStep = new(int32(2)) }),
			observed: answered(awake(5), 9), history: History{lastUp: at(-10)},
			want: decision{5, "ask 9 WebhookAnswered", evaluated, "True CoolingDown", within, 20 * time.Second, 0},
		},
		"a step down": {
			spec:     changed(fast(ask), func(s *v1alpha1.GameAutoscalerSpec) { s.Behavior.ScaleDown.MaxStep = new(int32(2)) }),
			observed: answered(awake(9), 1),
			want:     decision{7, "ask 1 WebhookAnswered", evaluated, ready, stepped, every, 0},
		},
		"a step that leads to the most": {
			spec:     changed(fast(ask), func(s *v1alpha1.GameAutoscalerSpec) { s.Behavior.ScaleUp.MaxStep = new(int32(2)) }),
			observed: answered(awake(8), 99),
			want:     decision{10, "ask 99 WebhookAnswered", evaluated, ready, atMost, every, 0},
		},
		"a first look takes none away before its window is over": {
			spec: changed(fast(ask), func(s *v1alpha1.GameAutoscalerSpec) {
				s.Behavior.ScaleDown.StabilizationWindow, s.Sync.Interval = nil, seconds(3600)
			}),
			observed: answered(awake(5), 1),
			want:     decision{5, "ask 1 WebhookAnswered", evaluated, "True ScaleDownStabilized", within, 5 * time.Minute, 0},
		},
		"a kind of policy from a later version": {
			spec: fast(v1alpha1.AutoscalerPolicy{Name: "magic"}), observed: awake(4),
			want: decision{4, "magic -1 NotObserved", "False NotObserved", ready, within, every, 0},
		},
		"another interval": {
			spec:     changed(fast(load), func(s *v1alpha1.GameAutoscalerSpec) { s.Sync.Interval = seconds(5) }),
			observed: awake(3).plays(15),
			want:     decision{3, "load 3 LoadNormal", evaluated, ready, within, 5 * time.Second, 0},
		},
	} {
		got := Make(t0, &test.spec, test.history, test.observed)
		if diff := cmp.Diff(test.want, decisionOf(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s%+v", name, diff, got)
		}
		for _, c := range []verdict{got.active, got.able, got.limited} {
			if c.message == "" {
				t.Errorf("%s: a condition has no message: %+v", name, c)
			}
		}
	}
}

// run makes plans one after the other, each of which is carried out at once.
type run struct {
	spec    v1alpha1.GameAutoscalerSpec
	history History
	desired int32
}

func (r *run) pass(t *testing.T, now time.Time, o Observed) Plan {
	t.Helper()
	o.Desired = r.desired
	before := fmt.Sprintf("%+v", r.history)
	delays := maps.Clone(r.history.delays)
	p := Make(now, &r.spec, r.history, o)
	if after := fmt.Sprintf("%+v", r.history); after != before || len(delays) != len(r.history.delays) {
		t.Fatalf("the plan changed the history that it was given:\n%s\n%s", before, after)
	}
	r.history, r.desired = p.History, p.Desired
	return p
}

func TestReplicasFollowWishesThatLast(t *testing.T) {
	type step struct {
		at     int
		answer int64
		want   int32
	}
	windows := func(up, down int) v1alpha1.GameAutoscalerSpec {
		return changed(fast(ask), func(s *v1alpha1.GameAutoscalerSpec) {
			s.Behavior.ScaleUp.StabilizationWindow, s.Behavior.ScaleDown.StabilizationWindow = seconds(up), seconds(down)
		})
	}
	for name, test := range map[string]struct {
		spec  v1alpha1.GameAutoscalerSpec
		steps []step
	}{
		"down after the window": {
			windows(0, 300),
			[]step{{0, 8, 8}, {30, 3, 8}, {60, 2, 8}, {329, 2, 8}, {330, 2, 3}, {359, 2, 3}, {360, 2, 2}},
		},
		"a peak begins the window again": {
			windows(0, 300),
			[]step{{0, 8, 8}, {30, 3, 8}, {200, 8, 8}, {230, 3, 8}, {529, 3, 8}, {530, 3, 3}},
		},
		"up at once while down waits": {
			windows(0, 300),
			[]step{{0, 4, 4}, {30, 2, 4}, {60, 7, 7}, {90, 2, 7}, {390, 2, 2}},
		},
		"up after the window, to the lowest wish": {
			windows(60, 0),
			[]step{{0, 2, 2}, {30, 8, 2}, {60, 6, 2}, {89, 8, 2}, {90, 8, 6}, {150, 8, 8}},
		},
		"between the two": {
			windows(60, 60),
			[]step{{0, 2, 2}, {30, 8, 2}, {50, 1, 2}, {70, 8, 2}, {90, 1, 2}},
		},
		"a clock that goes back an hour": {
			windows(0, 300),
			[]step{{3600, 8, 8}, {3630, 3, 8}, {0, 3, 8}, {299, 3, 8}, {300, 3, 3}},
		},
	} {
		r := run{spec: test.spec, desired: 2}
		for _, s := range test.steps {
			p := r.pass(t, at(s.at), answered(awake(2), s.answer))
			if p.Desired != s.want {
				t.Errorf("%s: %d after %d s, want %d: %+v", name, p.Desired, s.at, s.want, p.able)
			}
		}
	}
}

// After a wake what it brought stays for a window, whatever was wished before the sleep.
func TestASleepForgetsWhatWasWished(t *testing.T) {
	r := run{spec: changed(fast(ask, spare), func(s *v1alpha1.GameAutoscalerSpec) {
		s.Behavior.ScaleDown.StabilizationWindow = seconds(300)
		spare := *s.Policies[1].Buffer
		spare.ScaleDownDelay = seconds(600)
		s.Policies = []v1alpha1.AutoscalerPolicy{ask, {Name: "spare", Buffer: &spare}}
	}), desired: 4}
	r.pass(t, at(0), answered(awake(4).plays(5), 9))
	if !r.history.played || len(r.history.downs) == 0 || len(r.history.delays) != 1 || r.desired != 9 {
		t.Fatalf("awake, the history is %+v", r.history)
	}
	r.desired = 0
	r.pass(t, at(30), answered(Observed{Fresh: true}, 9))
	if h := r.history; h.played || len(h.ups)+len(h.downs)+len(h.delays) > 0 || !h.lastUp.Equal(at(0)) {
		t.Errorf("asleep, the history is %+v", h)
	}
	r.desired = 3 // somebody woke it
	empty := awake(3).with(func(o *Observed) { o.Empty = 3 })
	for _, s := range []struct {
		at   int
		want int32
	}{{60, 3}, {359, 3}, {360, 2}} {
		if p := r.pass(t, at(s.at), answered(empty, 1)); p.Desired != s.want {
			t.Errorf("%d after %d s, want %d: %+v", p.Desired, s.at, s.want, p)
		}
	}
}

func TestAPolicyThatIsGoneLeavesNoHistory(t *testing.T) {
	delayed := func(name string) v1alpha1.AutoscalerPolicy {
		return v1alpha1.AutoscalerPolicy{Name: name, Buffer: &v1alpha1.BufferPolicy{Servers: new(intstr.FromInt32(1)), ScaleDownDelay: seconds(600)}}
	}
	r := run{spec: fast(delayed("a"), delayed("b")), desired: 3}
	r.pass(t, at(0), awake(3))
	r.pass(t, at(10), awake(3).with(func(o *Observed) { o.Fresh = false }))
	if len(r.history.delays) != 2 {
		t.Errorf("there is the history of %v", r.history.delays)
	}
	r.spec = fast(delayed("b"))
	r.pass(t, at(30), awake(3))
	if _, ok := r.history.delays["b"]; !ok || len(r.history.delays) != 1 {
		t.Errorf("there is the history of %v", r.history.delays)
	}
	r.spec = fast(delayed("b"), usual)
	r.pass(t, at(40), awake(3))
	r.desired = 0
	r.pass(t, at(50), Observed{Fresh: true})
	if len(r.history.weeks) != 1 {
		t.Error("a sleep forgets what a forecast remembers")
	}
	r.spec = fast(delayed("b"))
	if r.pass(t, at(60), Observed{Fresh: true}); len(r.history.weeks) != 0 {
		t.Error("what a forecast remembers outlasts it")
	}
}

func TestTheHistoryHasWhenReplicasChanged(t *testing.T) {
	r := run{spec: fast(ask), desired: 3}
	for _, s := range []struct {
		at, answer int
		up, down   time.Time
	}{
		{0, 3, time.Time{}, time.Time{}},
		{10, 5, at(10), time.Time{}},
		{20, 5, at(10), time.Time{}},
		{30, 2, at(10), at(30)},
	} {
		r.pass(t, at(s.at), answered(awake(3), int64(s.answer)))
		if !r.history.lastUp.Equal(s.up) || !r.history.lastDown.Equal(s.down) {
			t.Errorf("after %d s it has %s and %s", s.at, r.history.lastUp, r.history.lastDown)
		}
	}
	r = run{spec: fast(waking(evening))}
	if r.pass(t, at(40), Observed{Fresh: true}); !r.history.lastUp.Equal(at(40)) {
		t.Errorf("of a wake it has %s", r.history.lastUp)
	}
}

// An evening: players come and go, and Servers with them, one at a time.
func TestActivePlayersFollowAnEvening(t *testing.T) {
	r := run{spec: v1alpha1.GameAutoscalerSpec{MaxReplicas: 10, Policies: []v1alpha1.AutoscalerPolicy{load}}, desired: 1}
	var got []int32
	for minute := range 180 {
		players := int64(min(minute, 60, 120-min(minute, 120)))
		if minute%20 == 0 {
			got = append(got, r.desired)
		}
		r.pass(t, at(60*minute), awake(r.desired).plays(players))
	}
	if diff := cmp.Diff([]int32{1, 3, 5, 8, 8, 8, 5, 1, 1}, got); diff != "" {
		t.Errorf("every twenty minutes there are (-want +got):\n%s", diff)
	}
}

// A new leader adds none before the cooldown is over, either.
func TestCooldownsOutlastTheLeader(t *testing.T) {
	spec := changed(fast(ask), func(s *v1alpha1.GameAutoscalerSpec) { s.Behavior.ScaleUp.Cooldown = seconds(300) })
	gas := &v1alpha1.GameAutoscaler{Status: v1alpha1.GameAutoscalerStatus{LastScaleTime: &metav1.Time{Time: at(0)}}}
	for second, want := range map[int]int32{60: 3, 299: 3, 300: 5} {
		if p := Make(at(second), &spec, HistoryOf(gas), answered(awake(3), 5)); p.Desired != want {
			t.Errorf("%d s after the last change it comes to %d Servers, want %d", second, p.Desired, want)
		}
	}
}

// A policy that can't be evaluated may have wished what there is. Once it can nothing goes before
// the window is over.
func TestAFailureBeginsTheWindowAnew(t *testing.T) {
	r := run{spec: changed(fast(ask, evening), func(s *v1alpha1.GameAutoscalerSpec) {
		low := *evening.Schedule
		low.Replicas = 2
		s.Policies = []v1alpha1.AutoscalerPolicy{ask, {Name: "evening", Schedule: &low}}
		s.Behavior.ScaleDown.StabilizationWindow = seconds(300)
	}), desired: 8}
	r.pass(t, at(0), answered(awake(8), 8))
	for second := 30; second <= 900; second += 30 {
		if p := r.pass(t, at(second), failedToAnswer(awake(8))); p.Desired != 8 {
			t.Fatalf("%d after %d s without an answer", p.Desired, second)
		}
	}
	for _, s := range []struct {
		at   int
		want int32
	}{{930, 8}, {1229, 8}, {1230, 2}} {
		if p := r.pass(t, at(s.at), answered(awake(8), 2)); p.Desired != s.want {
			t.Errorf("%d after %d s, want %d: %+v", p.Desired, s.at, s.want, p.able)
		}
	}
}
