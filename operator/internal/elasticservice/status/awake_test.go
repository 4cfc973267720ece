package status

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// A window is open for an hour from T0 on, which is noon.
func TestWhatKeepsAServiceAwakeIsSaid(t *testing.T) {
	up, zero := seen.Of(1, seen.UpServer), seen.Of(0)
	sleeps := func(es *v1alpha1.ElasticService) { es.Status.Phase = v1alpha1.PhaseAsleep }
	const keeps = "The service is kept awake until 2026-11-01 13:00 UTC by awake[0]."
	for name, c := range map[string]struct {
		change       func(*v1alpha1.ElasticService)
		now          float64
		o            planner.Observed
		f            planner.Findings
		reason, says string
		by           string
		status       metav1.ConditionStatus
		event        string
	}{
		"no window":       {change: func(es *v1alpha1.ElasticService) { es.Spec.Awake = nil }, o: up, status: metav1.ConditionTrue, reason: reasons.NotNeeded, says: "Neither the spec nor an annotation"},
		"before a window": {now: -1, o: up, status: metav1.ConditionTrue, reason: reasons.WindowClosed, says: "The next window, awake[0], opens at 2026-11-01 12:00 UTC."},
		"no window in years": {
			change: func(es *v1alpha1.ElasticService) { es.Spec.Awake[0].Cron = "0 0 29 2 */7" }, o: up, status: metav1.ConditionTrue, reason: reasons.WindowClosed, says: "No window opens in the next years.",
		},
		"in a window":               {o: up, status: metav1.ConditionTrue, reason: reasons.KeptAwake, says: keeps, by: "awake[0]", event: keeps},
		"woken for a window":        {change: sleeps, o: zero, status: metav1.ConditionTrue, reason: reasons.KeptAwake, says: keeps, by: "awake[0]"}, // the wake has an event of its own
		"scaled to zero in one":     {o: zero, status: metav1.ConditionTrue, reason: reasons.ScaledToZero, says: "Somebody scaled the target to zero, though awake[0] would keep it awake until 2026-11-01 13:00 UTC"},
		"a scale that isn't known":  {change: sleeps, o: planner.Observed{Scale: planner.Scale{Err: errors.New("timeout")}}, status: metav1.ConditionUnknown, reason: reasons.NotObserved, says: "the target's scale isn't known"},
		"an obstacle":               {o: up, f: planner.Findings{Obstacle: obstacle.New(reasons.ServiceNotFound, "none")}, status: metav1.ConditionUnknown, reason: reasons.NotObserved, says: "It isn't looked"},
		"a deletion":                {change: func(es *v1alpha1.ElasticService) { fixture.Deleted(es, fixture.At(0)) }, o: up, status: metav1.ConditionUnknown, reason: reasons.NotObserved, says: "It isn't looked"},
		"a cron that can't be read": {change: func(es *v1alpha1.ElasticService) { es.Spec.Awake[0].Cron = "0 0 30 2 *" }, o: up, status: metav1.ConditionFalse, reason: reasons.ScheduleInvalid, says: "spec.awake[0] counts for nothing", event: "spec.awake[0] counts for nothing"},
		"the annotation": {
			change: func(es *v1alpha1.ElasticService) {
				es.Annotations = map[string]string{wellknown.KeepAwakeUntilAnnotation: "2026-11-01T14:00:00Z"}
			},
			o: up, status: metav1.ConditionTrue, reason: reasons.KeptAwake, says: "until 2026-11-01 14:00 UTC by the annotation", by: "the annotation dormouse.dev/keep-awake-until", event: "by the annotation",
		},
		"kept asleep": {
			change: func(es *v1alpha1.ElasticService) {
				es.Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: "2026-11-01T14:00:00Z"}
			},
			o: up, status: metav1.ConditionTrue, reason: reasons.KeptAsleep, says: "Nothing wakes the service until 2026-11-01 14:00 UTC", event: "Nothing wakes the service until 2026-11-01 14:00 UTC",
		},
		"kept asleep already": {
			change: func(es *v1alpha1.ElasticService) {
				es.Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: "2026-11-01T14:00:00Z"}
				es.Status.Conditions = []metav1.Condition{{Type: conditions.AwakeWindowsValid, Status: metav1.ConditionTrue, Reason: reasons.KeptAsleep}}
			},
			o: up, status: metav1.ConditionTrue, reason: reasons.KeptAsleep, says: "Nothing wakes the service until",
		},
		"kept asleep, and a window can't be read": {
			change: func(es *v1alpha1.ElasticService) {
				es.Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: "2026-11-01T14:00:00Z"}
				es.Spec.Awake[0].Cron = "0 12 * *"
				es.Status.Conditions = []metav1.Condition{{Type: conditions.AwakeWindowsValid, Status: metav1.ConditionFalse, Reason: reasons.ScheduleInvalid}}
			},
			o: up, status: metav1.ConditionFalse, reason: reasons.ScheduleInvalid, says: "counts for nothing",
		},
		"kept awake already": {
			change: func(es *v1alpha1.ElasticService) {
				es.Status.KeptAwake = &v1alpha1.KeptAwake{Until: &metav1.Time{Time: fixture.At(3600)}, By: "awake[0]"}
			},
			o: up, status: metav1.ConditionTrue, reason: reasons.KeptAwake, says: keeps, by: "awake[0]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-7200))
			es.Spec.Awake = []v1alpha1.TimeWindow{{Cron: "0 12 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
			if c.change != nil {
				c.change(es)
			}
			before := es.DeepCopy()
			p := seen.Plan(fixture.At(c.now), es, c.o, c.f)
			Set(fixture.At(c.now), es, c.o, c.f, p)
			is := meta.FindStatusCondition(es.Status.Conditions, conditions.AwakeWindowsValid)
			if is.Status != c.status || is.Reason != c.reason || !strings.Contains(is.Message, c.says) {
				t.Errorf("it is %s %s: %s; want %s %s: %s", is.Status, is.Reason, is.Message, c.status, c.reason, c.says)
			}
			by := ""
			if kept := es.Status.KeptAwake; kept != nil {
				by = kept.By
			}
			if by != c.by && c.f.Obstacle == nil {
				t.Errorf("it is kept awake by %q, want %q", by, c.by)
			}
			ready := meta.FindStatusCondition(es.Status.Conditions, conditions.Ready)
			if invalid := c.status == metav1.ConditionFalse; invalid && ready.Reason != c.reason {
				t.Errorf("Ready is %s: %s", ready.Reason, ready.Message)
			}
			var notes strings.Builder
			for _, e := range Events(before, es, p) {
				if e.Reason == reasons.KeptAwake || e.Reason == reasons.KeptAsleep || e.Reason == reasons.ScheduleInvalid {
					notes.WriteString(e.Note)
				}
			}
			noted := notes.String()
			if !strings.Contains(noted, c.event) || c.event == "" && noted != "" {
				t.Errorf("the events are %q, want %q", noted, c.event)
			}
		})
	}
}

func TestASleepThatAWindowCancelsSaysSo(t *testing.T) {
	es := fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-1))
	es.Spec.Awake = []v1alpha1.TimeWindow{{Cron: "0 12 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	before := es.DeepCopy()
	o := seen.Of(1, seen.UpServer)
	p := seen.Plan(fixture.At(0), es, o, planner.Findings{})
	Set(fixture.At(0), es, o, planner.Findings{}, p)
	for _, e := range Events(before, es, p) {
		if e.Reason == "SleepCancelled" && strings.Contains(e.Note, "awake[0] keeps it awake until") {
			return
		}
	}
	t.Errorf("the events are %+v", Events(before, es, p))
}

// A service that fell asleep because no server came up had none that it could lose.
func TestASleepThatIsGivenUpLosesNoServer(t *testing.T) {
	for status, want := range map[metav1.ConditionStatus]string{metav1.ConditionFalse: "SleepCancelled", metav1.ConditionTrue: "NoServerUp"} {
		before := fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6))
		before.Status.Conditions = []metav1.Condition{{Type: conditions.ServerUp, Status: status}}
		es := before.DeepCopy()
		var got []string
		for _, e := range Events(before, es, planner.Plan{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy}) {
			got = append(got, e.Reason)
		}
		if !slices.Equal(got, []string{want}) {
			t.Errorf("with ServerUp %s the events are %q, want %s alone", status, got, want)
		}
	}
}
