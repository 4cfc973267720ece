package elasticservice

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// A target whose containers all crash costs nothing any more once nobody waits for it.
func TestAServiceWhoseServersDontComeUpFallsAsleepOnceNobodyWaits(t *testing.T) {
	crashes := func(change func(*v1alpha1.ElasticService, *observed)) plan {
		es := lobby(v1alpha1.PhaseWaking, at(-5))
		o := seen(1)
		o.triggers = trigger.Reading{}
		o.nobody, o.noneUpSince, o.noneLastingSince = true, at(-5), at(-600)
		o.resolvers[0].lastActive = at(-61)
		es.Status.LastWakeTime = micro(at(-70))
		change(es, &o)
		return makePlan(t0, es, o)
	}
	falling := func(es *v1alpha1.ElasticService, o *observed) {
		es.Status.Phase, es.Status.PhaseSince = v1alpha1.PhaseFallingAsleep, micro(at(-6))
		begun := es.Status.LastWakeTime.Time
		o.sleepBegun, o.resolvers[0].phase = &begun, string(v1alpha1.PhaseFallingAsleep)
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.ElasticService, *observed)
		phase  v1alpha1.Phase
		commit bool
		again  time.Duration
	}{
		"a minute after the last client left": {func(*v1alpha1.ElasticService, *observed) {}, v1alpha1.PhaseFallingAsleep, false, settle},
		"and then sleeps":                     {falling, v1alpha1.PhaseFallingAsleep, true, 0},
		"unless a client wakes it meanwhile": {func(es *v1alpha1.ElasticService, o *observed) {
			falling(es, o)
			es.Status.LastWakeTime = micro(at(-1))
		}, v1alpha1.PhaseWaking, false, wakePeriod},
		"not before": {func(_ *v1alpha1.ElasticService, o *observed) { o.resolvers[0].lastActive = at(-50) }, v1alpha1.PhaseWaking, false, 10 * time.Second},
		"not before servers had their time": {
			func(_ *v1alpha1.ElasticService, o *observed) { o.noneLastingSince = at(-20) },
			v1alpha1.PhaseWaking, false, 40 * time.Second,
		},
		"not soon after it has slept": {
			func(es *v1alpha1.ElasticService, _ *observed) { es.Status.LastSleepTime = micro(at(-20)) },
			v1alpha1.PhaseWaking, false, 40 * time.Second,
		},
		"not where clients have ways past the resolver": {func(_ *v1alpha1.ElasticService, o *observed) { o.leftovers.mirrored = true }, v1alpha1.PhaseWaking, false, 0},
		"not while somebody waits":                      {func(_ *v1alpha1.ElasticService, o *observed) { o.resolvers[0].queued = 1 }, v1alpha1.PhaseWaking, false, minQueuedPeriod},
		"not where somebody may be on a server":         {func(_ *v1alpha1.ElasticService, o *observed) { o.nobody = false }, v1alpha1.PhaseWaking, false, 0},
		"not where it never sleeps by itself": {
			func(es *v1alpha1.ElasticService, _ *observed) { es.Spec.SleepAfter.Duration = 0 },
			v1alpha1.PhaseWaking, false, 0,
		},
		"not where nothing tells whether it is idle": {func(es *v1alpha1.ElasticService, _ *observed) { es.Spec.Idle = nil }, v1alpha1.PhaseWaking, false, 0},
		"not without a resolver":                     {func(_ *v1alpha1.ElasticService, o *observed) { o.resolvers[0].ready = false }, v1alpha1.PhaseWaking, false, 0},
		"not while it is deleted":                    {func(es *v1alpha1.ElasticService, _ *observed) { deleted(es, at(-10)) }, v1alpha1.PhaseWaking, false, linger},
	} {
		t.Run(name, func(t *testing.T) {
			if p := crashes(c.change); p.phase != c.phase || p.commit != c.commit || p.requeue != c.again {
				t.Errorf("%s, commit %v, again in %s; want %s, %v, %s", p.phase, p.commit, p.requeue, c.phase, c.commit, c.again)
			}
		})
	}
}

// A server that crashes soon after each of its starts is never up for long.
func TestAServerThatCrashesAgainAndAgainDoesntLast(t *testing.T) {
	var m memory
	for _, s := range []float64{0, 20, 60} {
		m.up(at(s), false, true)
		m.up(at(s+2), true, true)
		m.up(at(s+10), true, true)
	}
	if !m.noneLastingSince.Equal(at(0)) || !m.noneUpSince.IsZero() {
		t.Errorf("none lasts since %s, none is up since %s; want %s and none", m.noneLastingSince, m.noneUpSince, at(0))
	}
	if m.up(at(122), true, true); !m.noneLastingSince.IsZero() {
		t.Error("one that has been up for a minute doesn't last")
	}
	// It has its time from when it is wanted: nobody may have made a wake call.
	m.up(at(200), false, false)
	if m.up(at(900), false, true); !m.noneLastingSince.Equal(at(900)) {
		t.Errorf("none lasts since %s, want %s, when one was wanted", m.noneLastingSince, at(900))
	}
}
