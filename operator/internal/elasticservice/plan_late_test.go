package elasticservice

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestAResolverThatShouldListenIsAskedAgain(t *testing.T) {
	silent := func(change func(*resolver)) resolver {
		r := standing("resolver-1")
		r.listening = nil
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		phase    v1alpha1.Phase
		resolver resolver
		want     time.Duration
	}{
		"soon, where clients wait for it":       {v1alpha1.PhaseAsleep, silent(func(*resolver) {}), 200 * time.Millisecond},
		"in a while, where servers serve":       {v1alpha1.PhaseAwake, silent(func(*resolver) {}), time.Second},
		"seldom, when it can't listen":          {v1alpha1.PhaseAsleep, silent(func(r *resolver) { r.portErrors = []string{"port 10001: in use"} }), 5 * time.Second},
		"seldom, when it doesn't answer":        {v1alpha1.PhaseAsleep, silent(func(r *resolver) { r.reachable = false }), 5 * time.Second},
		"not, when it isn't ready":              {v1alpha1.PhaseAsleep, silent(func(r *resolver) { r.ready = false }), 0},
		"not, when it listens on all it should": {v1alpha1.PhaseAsleep, standing("resolver-1"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			es := lobby(c.phase, at(-3600))
			es.Spec.Idle = nil
			o := seen(0)
			if c.phase == v1alpha1.PhaseAwake {
				o = seen(1, upServer)
			}
			o.resolvers = []resolver{c.resolver}
			if got := makePlan(at(0), es, o).requeue; got != c.want {
				t.Errorf("requeue after %s, want %s", got, c.want)
			}
		})
	}
}
