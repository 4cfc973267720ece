package planner_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakegroup"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

func named(phase v1alpha1.Phase) func(*planner.Observed) {
	return func(o *planner.Observed) {
		o.Group = &wakegroup.Seen{Named: []wakegroup.Other{{Name: "database", Phase: phase, PhaseSince: fixture.At(-1)}}}
	}
}

// The page's own server is up. Clients are held for half of five minutes at most.
func TestAServiceWaitsForThoseThatAreWokenWithIt(t *testing.T) {
	for name, c := range map[string]struct {
		was, database, phase v1alpha1.Phase
		since                float64
		servers              []endpoints.Server
		waits                bool
		again                time.Duration
	}{
		"waking, until it is up":            {v1alpha1.PhaseWaking, v1alpha1.PhaseWaking, v1alpha1.PhaseWaking, -10, []endpoints.Server{seen.UpServer}, true, 140 * time.Second},
		"waking, while it falls asleep":     {v1alpha1.PhaseWaking, v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseWaking, -10, []endpoints.Server{seen.UpServer}, true, 140 * time.Second},
		"waking, and it is up":              {v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, v1alpha1.PhaseAwake, -10, []endpoints.Server{seen.UpServer}, false, 0},
		"waking, for long enough":           {v1alpha1.PhaseWaking, v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, -150, []endpoints.Server{seen.UpServer}, false, 0},
		"asleep, and scaled up with a pod":  {v1alpha1.PhaseAsleep, v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking, -600, []endpoints.Server{seen.UpServer}, true, 0},
		"waking, without a server":          {v1alpha1.PhaseWaking, v1alpha1.PhaseWaking, v1alpha1.PhaseWaking, -10, nil, true, 140 * time.Second},
		"awake already":                     {v1alpha1.PhaseAwake, v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, -10, []endpoints.Server{seen.UpServer}, false, 0},
		"about to sleep, when it is used":   {v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAsleep, v1alpha1.PhaseAwake, -10, []endpoints.Server{seen.UpServer}, false, 0},
		"awake when Dormouse first sees it": {"", v1alpha1.PhaseAsleep, v1alpha1.PhaseAwake, -10, []endpoints.Server{seen.UpServer}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Lobby(c.was, fixture.At(c.since))
			o := seen.With(seen.Of(1, c.servers...), named(c.database), func(o *planner.Observed) {
				o.Resolvers[0].LastActive = fixture.At(0)
				o.Triggers.BelowSince = time.Time{}
			})
			p := seen.Plan(fixture.At(0), es, o, planner.Findings{})
			if p.Phase != c.phase || len(p.WaitsFor) > 0 != c.waits {
				t.Errorf("it is %s and waits for %v, want %s, %t", p.Phase, p.WaitsFor, c.phase, c.waits)
			}
			if again := p.RequeueAfter.Duration(); c.again > 0 && again != c.again {
				t.Errorf("it is looked at again in %s, want %s", again, c.again)
			}
			if standsIn := p.Mode == v1alpha1.ModeProxy; standsIn != (c.phase == v1alpha1.PhaseWaking) {
				t.Errorf("new clients go to a resolver: %t", standsIn)
			}
		})
	}
	// Its resolvers know before it wakes.
	es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600))
	p := seen.Plan(fixture.At(0), es, seen.With(seen.Of(0), named(v1alpha1.PhaseAsleep)), planner.Findings{})
	if diff := cmp.Diff([]string{"database"}, p.WaitsFor); diff != "" || p.Raise {
		t.Errorf("asleep it waits for (-want +got): %s, raise %t", diff, p.Raise)
	}
	fixture.Deleted(es, fixture.At(0))
	es.Status.Phase = v1alpha1.PhaseWaking
	if p := seen.Plan(fixture.At(0), es, seen.With(seen.Of(1, seen.UpServer), named(v1alpha1.PhaseAsleep)), planner.Findings{}); p.Phase != v1alpha1.PhaseAwake {
		t.Errorf("being deleted it is %s, and waits", p.Phase)
	}
}

func TestAServiceIsAwakeWhileOneThatNamesItIs(t *testing.T) {
	sleeps := func(es *v1alpha1.ElasticService) {
		es.Status.Phase, es.Status.ReplicasBeforeSleep = v1alpha1.PhaseAsleep, 1
		es.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: es.Spec.ScaleTargetRef}
	}
	page := idleness.KeptAwake{By: "ElasticService page", Open: true}
	for name, c := range map[string]struct {
		page     v1alpha1.Phase
		replicas int32
		change   func(*v1alpha1.ElasticService)
		phase    v1alpha1.Phase
		raise    bool
		kept     idleness.KeptAwake
	}{
		"idle, it doesn't sleep":               {v1alpha1.PhaseAwake, 1, nil, v1alpha1.PhaseAwake, false, page},
		"idle, it sleeps after that one":       {v1alpha1.PhaseAsleep, 1, nil, v1alpha1.PhaseFallingAsleep, false, idleness.KeptAwake{}},
		"about to sleep, it doesn't":           {v1alpha1.PhaseWaking, 1, func(es *v1alpha1.ElasticService) { es.Status.Phase = v1alpha1.PhaseFallingAsleep }, v1alpha1.PhaseAwake, false, page},
		"asleep, it is woken with that one":    {v1alpha1.PhaseWaking, 0, sleeps, v1alpha1.PhaseAsleep, true, page},
		"asleep, it is left alone like that":   {v1alpha1.PhaseAsleep, 0, sleeps, v1alpha1.PhaseAsleep, false, idleness.KeptAwake{}},
		"scaled to zero, it is left alone":     {v1alpha1.PhaseAwake, 0, nil, v1alpha1.PhaseAsleep, false, idleness.KeptAwake{}},
		"deleted, it is woken by its deletion": {v1alpha1.PhaseAsleep, 0, func(es *v1alpha1.ElasticService) { sleeps(es); fixture.Deleted(es, fixture.At(0)) }, v1alpha1.PhaseAsleep, true, idleness.KeptAwake{}},
		"in a window, that has an end":         {v1alpha1.PhaseAwake, 1, func(es *v1alpha1.ElasticService) { noon(es) }, v1alpha1.PhaseAwake, false, idleness.KeptAwake{Until: fixture.At(3600), By: "awake[0]"}},
		"scaled to zero in a window before it": {v1alpha1.PhaseWaking, 0, func(es *v1alpha1.ElasticService) {
			noon(es).Status.Phase, es.Status.ReplicasBeforeSleep, es.Status.LastSleepTime = v1alpha1.PhaseAsleep, 1, fixture.Micro(fixture.At(0))
		}, v1alpha1.PhaseAsleep, true, page},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-7200))
			if c.change != nil {
				c.change(es)
			}
			o := seen.Of(c.replicas)
			if c.replicas > 0 {
				o = seen.Of(c.replicas, seen.UpServer)
			}
			o.Triggers = trigger.Reading{At: fixture.At(1), BelowSince: fixture.At(-7200)}
			o.Group = &wakegroup.Seen{Wakers: []wakegroup.Other{{Name: "page", Phase: c.page, SleptUntil: fixture.At(0.5)}}}
			p := seen.Plan(fixture.At(1), es, o, planner.Findings{})
			if p.Phase != c.phase || p.Raise != c.raise {
				t.Errorf("%s, raise %t; want %s, %t", p.Phase, p.Raise, c.phase, c.raise)
			}
			if diff := cmp.Diff(c.kept, p.KeptAwake(es)); diff != "" {
				t.Errorf("it is kept awake by (-want +got): %s", diff)
			}
		})
	}
	// Nor is it given up.
	es := fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-600))
	o := seen.Of(1)
	o.Nobody, o.NoneUpSince, o.NoneLastingSince = true, fixture.At(-600), fixture.At(-600)
	o.Group = &wakegroup.Seen{Wakers: []wakegroup.Other{{Name: "page", Phase: v1alpha1.PhaseAwake}}}
	if p := seen.Plan(fixture.At(1), es, o, planner.Findings{}); p.Phase != v1alpha1.PhaseWaking {
		t.Errorf("without a server it is %s", p.Phase)
	}
}
