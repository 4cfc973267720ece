package status

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakegroup"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

func TestAWakeGroupIsSaid(t *testing.T) {
	up, zero := seen.Of(1, seen.UpServer), seen.Of(0)
	waits := func(o *planner.Observed) {
		o.Group = &wakegroup.Seen{Named: []wakegroup.Other{{Name: "database", Phase: v1alpha1.PhaseAsleep, PhaseSince: fixture.At(-600)}}}
	}
	kept := func(o *planner.Observed) {
		o.Group = &wakegroup.Seen{Wakers: []wakegroup.Other{{Name: "page", Phase: v1alpha1.PhaseAwake}}}
	}
	unknown := func(o *planner.Observed) { o.Scale.Err = errors.New("timeout") }
	slept := func(es *v1alpha1.ElasticService) {
		es.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: es.Spec.ScaleTargetRef}
	}
	none := func(*v1alpha1.ElasticService) {}
	for name, c := range map[string]struct {
		phase        v1alpha1.Phase
		change       func(*v1alpha1.ElasticService)
		o            planner.Observed
		f            planner.Findings
		status       metav1.ConditionStatus
		reason, says string
		waitsFor     []string
		by           string
	}{
		"nobody":           {v1alpha1.PhaseAwake, func(es *v1alpha1.ElasticService) { es.Spec.WakeWith = nil }, up, planner.Findings{}, metav1.ConditionTrue, reasons.NotNeeded, "The spec names nothing", nil, ""},
		"awake":            {v1alpha1.PhaseAwake, none, up, planner.Findings{}, metav1.ConditionTrue, reasons.OK, "Woken with the service: database.", nil, ""},
		"asleep":           {v1alpha1.PhaseAsleep, none, seen.With(zero, waits), planner.Findings{}, metav1.ConditionTrue, reasons.OK, "Woken with the service: database.", []string{"database"}, ""},
		"waking":           {v1alpha1.PhaseWaking, none, seen.With(up, waits), planner.Findings{}, metav1.ConditionTrue, reasons.WaitsForOthers, "Clients are held until database of spec.wakeWith is up, too, for 2m30s at most.", []string{"database"}, ""},
		"kept awake":       {v1alpha1.PhaseAwake, none, seen.With(up, kept), planner.Findings{}, metav1.ConditionTrue, reasons.KeptAwake, "The service is kept awake by ElasticService page until that is asleep.", nil, "ElasticService page"},
		"being woken":      {v1alpha1.PhaseAsleep, slept, seen.With(zero, kept), planner.Findings{}, metav1.ConditionTrue, reasons.KeptAwake, "by ElasticService page", nil, "ElasticService page"},
		"scaled to zero":   {v1alpha1.PhaseAwake, none, seen.With(zero, kept), planner.Findings{}, metav1.ConditionTrue, reasons.ScaledToZero, "though ElasticService page would keep it awake", nil, ""},
		"an unknown scale": {v1alpha1.PhaseAsleep, slept, seen.With(zero, kept, unknown), planner.Findings{}, metav1.ConditionUnknown, reasons.NotObserved, "ElasticService page is to keep", nil, ""},
		"a cycle":          {v1alpha1.PhaseAwake, none, seen.With(up, func(o *planner.Observed) { o.Group = &wakegroup.Seen{Cycle: []string{"database", "lobby"}} }), planner.Findings{}, metav1.ConditionFalse, reasons.WakeGroupCycle, "(lobby, database, lobby)", nil, ""},
		"an obstacle":      {v1alpha1.PhaseWaking, none, seen.With(up, waits), planner.Findings{Obstacle: obstacle.New(reasons.ServiceNotFound, "none")}, metav1.ConditionUnknown, reasons.NotObserved, "It isn't looked", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Lobby(c.phase, fixture.At(-60))
			es.Spec.WakeWith, es.Status.WaitsFor = []string{"database"}, []string{"cache"}
			c.change(es)
			before := es.DeepCopy()
			p := seen.Plan(fixture.At(0), es, c.o, c.f)
			Set(fixture.At(0), es, c.o, c.f, p)
			is := meta.FindStatusCondition(es.Status.Conditions, conditions.WakeGroupValid)
			if is.Status != c.status || is.Reason != c.reason || !strings.Contains(is.Message, c.says) {
				t.Errorf("it is %s %s: %s; want %s %s: %s", is.Status, is.Reason, is.Message, c.status, c.reason, c.says)
			}
			by := ""
			if kept := es.Status.KeptAwake; kept != nil {
				if by = kept.By; kept.Until != nil {
					t.Errorf("it is kept awake until %s", kept.Until)
				}
			}
			if by != c.by {
				t.Errorf("it is kept awake by %q, want %q", by, c.by)
			}
			if diff := cmp.Diff(c.waitsFor, es.Status.WaitsFor); diff != "" {
				t.Errorf("it waits for (-want +got): %s", diff)
			}
			ready, warned := meta.FindStatusCondition(es.Status.Conditions, conditions.Ready), false
			for _, e := range Events(before, es, p) {
				warned = warned || e.Reason == c.reason && e.Note == is.Message
			}
			if c.status == metav1.ConditionFalse && (ready.Reason != c.reason || !warned) {
				t.Errorf("Ready is %s: %s, and there is an event: %t", ready.Reason, ready.Message, warned)
			}
		})
	}
}

func TestTheEndOfASleepIsKept(t *testing.T) {
	es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-60))
	for i, c := range []struct {
		o    planner.Observed
		want float64
	}{{seen.Of(1), 0}, {seen.Of(1, seen.UpServer), 0}, {seen.Of(0), 0}, {seen.Of(1), 3}} {
		now := fixture.At(float64(i))
		Set(now, es, c.o, planner.Findings{}, seen.Plan(now, es, c.o, planner.Findings{}))
		if got := es.Status.SleptUntil; !got.Time.Equal(fixture.At(c.want)) {
			t.Errorf("%s at %d it slept until %s, want %s", es.Status.Phase, i, got, fixture.At(c.want))
		}
	}
}
