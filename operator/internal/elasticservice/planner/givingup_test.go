package planner_test

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// A target whose containers all crash costs nothing any more once nobody waits for it.
func TestAServiceWhoseServersDontComeUpFallsAsleepOnceNobodyWaits(t *testing.T) {
	crashes := func(change func(*v1alpha1.ElasticService, *planner.Observed)) planner.Plan {
		es := fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-5))
		o := seen.Of(1)
		o.Triggers = trigger.Reading{}
		o.Nobody, o.NoneUpSince, o.NoneLastingSince = true, fixture.At(-5), fixture.At(-600)
		o.Resolvers[0].LastActive = fixture.At(-61)
		es.Status.LastWakeTime = fixture.Micro(fixture.At(-70))
		change(es, &o)
		return seen.Plan(fixture.T0, es, o, planner.Findings{})
	}
	falling := func(es *v1alpha1.ElasticService, o *planner.Observed) {
		es.Status.Phase, es.Status.PhaseSince = v1alpha1.PhaseFallingAsleep, fixture.Micro(fixture.At(-6))
		begun := es.Status.LastWakeTime.Time
		o.SleepBegun, o.Resolvers[0].Phase = &begun, string(v1alpha1.PhaseFallingAsleep)
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.ElasticService, *planner.Observed)
		phase  v1alpha1.Phase
		commit bool
		again  time.Duration
	}{
		"a minute after the last client left": {func(*v1alpha1.ElasticService, *planner.Observed) {}, v1alpha1.PhaseFallingAsleep, false, planner.Settle},
		"and then sleeps":                     {falling, v1alpha1.PhaseFallingAsleep, true, 0},
		"unless a client wakes it meanwhile": {func(es *v1alpha1.ElasticService, o *planner.Observed) {
			falling(es, o)
			es.Status.LastWakeTime = fixture.Micro(fixture.At(-1))
		}, v1alpha1.PhaseWaking, false, planner.WakePeriod},
		"not before": {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Resolvers[0].LastActive = fixture.At(-50) }, v1alpha1.PhaseWaking, false, 10 * time.Second},
		"not before servers had their time": {
			func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.NoneLastingSince = fixture.At(-20) },
			v1alpha1.PhaseWaking, false, 40 * time.Second,
		},
		"not soon after it has slept": {
			func(es *v1alpha1.ElasticService, _ *planner.Observed) {
				es.Status.LastSleepTime = fixture.Micro(fixture.At(-20))
			},
			v1alpha1.PhaseWaking, false, 40 * time.Second,
		},
		"not where clients have ways past the resolver": {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Leftovers.Mirrored = true }, v1alpha1.PhaseWaking, false, 0},
		"not while somebody waits":                      {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Resolvers[0].Queued = 1 }, v1alpha1.PhaseWaking, false, planner.MinQueuedPeriod},
		"not while somebody is relayed":                 {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Resolvers[0].Sessions = 1 }, v1alpha1.PhaseWaking, false, 0},
		"noise is nobody": {
			func(_ *v1alpha1.ElasticService, o *planner.Observed) {
				o.Resolvers[0].Sessions, o.Resolvers[0].Unvalidated = 1, 1
			},
			v1alpha1.PhaseFallingAsleep, false, planner.Settle,
		},
		"not where somebody may be on a server": {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Nobody = false }, v1alpha1.PhaseWaking, false, 0},
		"not where it never sleeps by itself": {
			func(es *v1alpha1.ElasticService, _ *planner.Observed) { es.Spec.SleepAfter.Duration = 0 },
			v1alpha1.PhaseWaking, false, 0,
		},
		"not where nothing tells whether it is idle": {func(es *v1alpha1.ElasticService, _ *planner.Observed) { es.Spec.Idle = nil }, v1alpha1.PhaseWaking, false, 0},
		"not without a resolver":                     {func(_ *v1alpha1.ElasticService, o *planner.Observed) { o.Resolvers[0].Ready = false }, v1alpha1.PhaseWaking, false, 0},
		"not while it is deleted":                    {func(es *v1alpha1.ElasticService, _ *planner.Observed) { fixture.Deleted(es, fixture.At(-10)) }, v1alpha1.PhaseWaking, false, endpoints.Linger},
	} {
		t.Run(name, func(t *testing.T) {
			if p := crashes(c.change); p.Phase != c.phase || p.Commit != c.commit || p.RequeueAfter.Duration() != c.again {
				t.Errorf("%s, commit %v, again in %s; want %s, %v, %s", p.Phase, p.Commit, p.RequeueAfter, c.phase, c.commit, c.again)
			}
		})
	}
}
