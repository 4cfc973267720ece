package elasticservice

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/status"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// apiServer is a live reader that has pods, and counts how often it is asked.
type apiServer struct {
	client.Reader
	pods  []corev1.Pod
	err   error
	lists int
}

func (a *apiServer) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if pods, ok := list.(*corev1.PodList); ok {
		a.lists++
		pods.Items = a.pods
	}
	return a.err
}

// patient is a service that wakes, seen by one leader.
type patient struct {
	t   *testing.T
	r   *Reconciler
	api *apiServer
	es  *v1alpha1.ElasticService
}

func newPatient(t *testing.T, pods ...corev1.Pod) *patient {
	t.Helper()
	api := &apiServer{pods: pods}
	r := &Reconciler{Live: api, Scaler: target.NewScaler(nil, nil), Notify: func(types.NamespacedName) {}, Now: func() time.Time { return fixture.At(7) }}
	r.Init()
	r.lookouts.Run = func(look func()) { look() }
	return &patient{t: t, r: r, api: api, es: fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-60))}
}

// pass is one of the controller's passes; it gives the condition ServerUp's
// reason, the events, and after how long it wants another pass.
func (p *patient) pass(seconds float64, o planner.Observed, queued int32) (reason string, emitted []kit.Notice, again time.Duration) {
	p.t.Helper()
	pl := seen.Plan(fixture.At(seconds), p.es, o, planner.Findings{})
	pl.Queued = queued
	s := p.r.stateOf(p.es)
	cause, again := p.r.diagnose(context.Background(), &pass{es: p.es, state: s, now: fixture.At(seconds), observed: o, plan: pl})
	before := p.es.DeepCopy()
	status.Set(fixture.At(seconds), p.es, o, planner.Findings{Cause: cause}, pl)
	emitted = s.diagnosis.Events(before, p.es, cause)
	for _, c := range p.es.Status.Conditions {
		if c.Type == conditions.ServerUp {
			reason = c.Reason
		}
		if c.Type == conditions.Ready {
			wrong := cause != nil && cause.Wrong
			if (c.Status == metav1.ConditionFalse) != wrong {
				p.t.Errorf("at %v Ready is %s %s, and the cause is %+v", seconds, c.Status, c.Reason, cause)
			}
		}
	}
	return reason, emitted, again
}

func crashed(name string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: fixture.Service().Spec.Selector},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "game", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
		}}},
	}
}

func noImage(name string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: fixture.Service().Spec.Selector},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "game", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
		}}},
	}
}

var bootingServer = endpoints.Server{UID: "pod-1", Addresses: []string{"10.244.2.9"}}

func TestAServiceThatWakesNormallyIsNotLookedAt(t *testing.T) {
	p := newPatient(t, crashed("lobby-1"))
	for i, o := range []planner.Observed{seen.Of(0), seen.Of(1), seen.Of(1, bootingServer), seen.Of(1, seen.UpServer), seen.Of(0), seen.Of(1), seen.Of(1, seen.UpServer)} {
		p.pass(float64(i), o, 0)
	}
	if p.api.lists != 0 {
		t.Errorf("the API server was asked %d times", p.api.lists)
	}
}

func TestAServerThatIsLateIsLookedAtLessAndLessOften(t *testing.T) {
	p := newPatient(t, crashed("lobby-1"))
	var looks []float64
	for now := 0.0; now < 120; {
		before := p.api.lists
		_, _, again := p.pass(now, seen.Of(1), 0)
		if p.api.lists > before {
			looks = append(looks, now)
		}
		if again <= 0 {
			t.Fatalf("at %v nobody looks again", now)
		}
		now += again.Seconds()
	}
	want := []float64{5, 10, 20, 40, 70, 100}
	if len(looks) != len(want) {
		t.Fatalf("looked at %v, want %v", looks, want)
	}
	for i := range want {
		if looks[i] != want[i] {
			t.Fatalf("looked at %v, want %v", looks, want)
		}
	}
}

func TestEachNewReasonIsToldOnceAndTheConditionHeals(t *testing.T) {
	p := newPatient(t, crashed("lobby-1"))
	step := func(seconds float64, o planner.Observed, wantReason string, wantEvents int) {
		t.Helper()
		reason, emitted, _ := p.pass(seconds, o, 0)
		if reason != wantReason || len(emitted) != wantEvents {
			t.Errorf("at %v the reason is %s with %d events, want %s with %d", seconds, reason, len(emitted), wantReason, wantEvents)
		}
	}
	step(0, seen.Of(0), reasons.NotNeeded, 0)
	step(1, seen.Of(1), reasons.ServerStarting, 0)
	step(6, seen.Of(1), reasons.ServerCrashing, 1)
	step(11, seen.Of(1), reasons.ServerCrashing, 0)
	p.api.pods = []corev1.Pod{noImage("lobby-2")}
	step(21, seen.Of(1), reasons.ImageUnavailable, 1)
	// What can't be read just now is no better than what was known.
	p.api.err = errors.New("gone")
	step(41, seen.Of(1), reasons.ImageUnavailable, 0)
	p.api.err, p.api.pods = nil, []corev1.Pod{crashed("lobby-3")}
	step(42, seen.Of(1, seen.UpServer), reasons.OK, 0)
	// It is up for a second each time: that is the same trouble.
	p.r.stateOf(p.es).diagnosis.Emitted = reasons.ServerCrashing
	step(43, seen.Of(1), reasons.ServerStarting, 0)
	step(48, seen.Of(1), reasons.ServerCrashing, 0)
	step(50, seen.Of(1, seen.UpServer), reasons.OK, 0)
	// After a good minute it is news.
	step(111, seen.Of(1), reasons.ServerStarting, 0)
	step(116, seen.Of(1), reasons.ServerCrashing, 1)
	step(117, seen.Of(0), reasons.NotNeeded, 0)
}

// What was found before a sleep tells nothing of the servers after it, though no pass may have seen the
// target at zero.
func TestAServerHasItsTimeAgainAfterASleep(t *testing.T) {
	p := newPatient(t, noImage("lobby-1"))
	p.pass(0, seen.Of(1), 0)
	if reason, _, _ := p.pass(6, seen.Of(1), 0); reason != reasons.ImageUnavailable {
		t.Fatalf("the reason is %s, want %s", reason, reasons.ImageUnavailable)
	}
	asleep := planner.Plan{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Commit: true}
	status.Set(fixture.At(6), p.es, seen.Of(0), planner.Findings{}, asleep)
	p.r.slept(p.r.stateOf(p.es), p.es)
	if reason, _, again := p.pass(7, seen.Of(1), 0); reason != reasons.ServerStarting || again <= 0 {
		t.Errorf("after the sleep the reason is %s, looked at again after %s; want %s", reason, again, reasons.ServerStarting)
	}
	if reason, emitted, _ := p.pass(12, seen.Of(1), 0); reason != reasons.ImageUnavailable || len(emitted) != 1 {
		t.Errorf("once it is late again the reason is %s with events %v", reason, emitted)
	}
}

// A look that was taken before a server's container runs says no more that nobody can be on it.
func TestAServerThatRunsIsNotPutToSleepByAnEarlierLook(t *testing.T) {
	p := newPatient(t, noImage("lobby-1"))
	p.pass(0, seen.Of(1), 0)
	p.pass(6, seen.Of(1), 0)
	m := p.r.stateOf(p.es)
	confirm := func(want bool) {
		t.Helper()
		if idle, _, err := p.r.confirmIdle(t.Context(), p.es, seen.Of(1)); err != nil || idle != want {
			t.Errorf("it is idle: %t, %v; want %t", idle, err, want)
		}
	}
	if confirm(true); m.diagnosis.Found == nil || !m.diagnosis.Found.Nobody {
		t.Fatalf("found %+v, want that nobody can be on it", m.diagnosis.Found)
	}
	p.api.err = errors.New("gone")
	if _, _, err := p.r.confirmIdle(t.Context(), p.es, seen.Of(1)); err == nil || m.diagnosis.Found == nil {
		t.Errorf("what can't be read has changed what is known to %+v: %v", m.diagnosis.Found, err)
	}
	p.api.err, p.api.pods[0].Status.ContainerStatuses[0].State = nil, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(fixture.At(7))}}
	confirm(false)
	if reason, _, again := p.pass(7, seen.Of(1), 0); reason != reasons.ImageUnavailable || again != 5*time.Second || m.diagnosis.Found.Nobody {
		t.Errorf("once it runs the reason is %s, looked at again after %s, and found %+v; want that it stays for 5s, and that somebody may be on it", reason, again, m.diagnosis.Found)
	}
	if reason, _, _ := p.pass(12, seen.Of(1), 0); reason != reasons.ServerStarting {
		t.Errorf("after the next look the reason is %s, want %s", reason, reasons.ServerStarting)
	}
}

func TestANewLeaderTellsNothingTwice(t *testing.T) {
	p := newPatient(t, crashed("lobby-1"))
	p.pass(0, seen.Of(1), 0)
	p.pass(6, seen.Of(1), 0)
	p.r.Init()
	var look func()
	p.r.lookouts.Run = func(l func()) { look = l }
	// It goes by the phase's time in the status, and looks at once. Until it has found
	// something it says what the last leader said.
	for range 2 {
		if reason, emitted, _ := p.pass(6.5, seen.Of(1), 0); reason != reasons.ServerCrashing || len(emitted) != 0 {
			t.Errorf("before it has looked the reason is %s with events %v, want %s with none", reason, emitted, reasons.ServerCrashing)
		}
	}
	look()
	if reason, emitted, _ := p.pass(7, seen.Of(1), 0); reason != reasons.ServerCrashing || len(emitted) != 0 {
		t.Errorf("the reason is %s with events %v, want %s with none", reason, emitted, reasons.ServerCrashing)
	}
}

func TestClientsThatWaitForAServerThatIsUpAreNoticed(t *testing.T) {
	p := newPatient(t)
	p.pass(0, seen.Of(1, seen.UpServer), 2)
	if reason, _, again := p.pass(29, seen.Of(1, seen.UpServer), 1); reason != reasons.OK || again == 0 {
		t.Errorf("after 29 s the reason is %s, looked at again after %s", reason, again)
	}
	if reason, emitted, _ := p.pass(30, seen.Of(1, seen.UpServer), 1); reason != reasons.ServerNotListening || len(emitted) != 1 {
		t.Errorf("after 30 s the reason is %s with events %v", reason, emitted)
	}
	if reason, _, _ := p.pass(31, seen.Of(1, seen.UpServer), 0); reason != reasons.OK {
		t.Errorf("after they were served the reason is %s", reason)
	}
	if p.api.lists != 0 {
		t.Errorf("the API server was asked %d times", p.api.lists)
	}
}

func TestClientsThatWaitForRoomAreNoticed(t *testing.T) {
	full := seen.UpServer
	full.Full = true
	cases := map[string]struct {
		handoff v1alpha1.Handoff
		servers []endpoints.Server
		want    string
	}{
		"all servers are full":               {v1alpha1.HandoffNever, []endpoints.Server{full}, reasons.ServersFull},
		"one has room":                       {v1alpha1.HandoffNever, []endpoints.Server{full, {UID: "pod-3", Addresses: []string{"10.244.2.11"}, Serving: true}}, reasons.ServerNotListening},
		"one that drains doesn't count":      {v1alpha1.HandoffNever, []endpoints.Server{full, {UID: "pod-3", Addresses: []string{"10.244.2.11"}, Serving: true, Draining: true}}, reasons.ServersFull},
		"nor is a full one the cause beside": {v1alpha1.HandoffDirect, []endpoints.Server{full}, reasons.ServerNotListening},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			p.es.Spec.Handoff = tc.handoff
			o := seen.With(seen.Of(1, tc.servers...), func(o *planner.Observed) { o.Service.Spec.Selector = nil })
			p.pass(0, o, 2)
			if reason, emitted, _ := p.pass(30, o, 1); reason != tc.want || len(emitted) != 1 {
				t.Errorf("after 30 s the reason is %s with events %v, want %s", reason, emitted, tc.want)
			}
		})
	}
}

func TestAnEditedTargetIsLookedAtSoon(t *testing.T) {
	p := newPatient(t, noImage("lobby-1"))
	for _, now := range []float64{0, 5, 10, 20} {
		p.pass(now, seen.Of(1), 0)
	}
	p.r.stateOf(p.es).scale.of.generation = 2
	if _, _, again := p.pass(21, seen.Of(1), 0); again != 5*time.Second {
		t.Errorf("looked at again after %s, want 5s", again)
	}
}

// A Service whose selector fits none of the target's pods has no server, however well they
// are.
func TestASelectorThatFitsNoPodIsSaid(t *testing.T) {
	pod := crashed("lobby-1")
	pod.Labels = map[string]string{"app": "lobby-server"}
	p := newPatient(t, pod)
	p.pass(0, seen.Of(1), 1)
	reason, emitted, _ := p.pass(6, seen.Of(1), 1)
	if reason != reasons.SelectorFitsNoPod || len(emitted) != 1 || !strings.Contains(emitted[0].Note, "selector of Service lobby (app=lobby)") {
		t.Errorf("the reason is %s, and the events are %v", reason, emitted)
	}
}
