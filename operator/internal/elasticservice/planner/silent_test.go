package planner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// What a resolver has that doesn't answer isn't known. One that is ready may have clients for as
// long as it is; one that isn't has none after five minutes. A sleep that can't be committed is
// cancelled, and isn't looked at ten times a second.
func TestASilentResolverKeepsServicesAwakeWhileItIsReady(t *testing.T) {
	falling := string(v1alpha1.PhaseFallingAsleep)
	for name, c := range map[string]struct {
		phase  v1alpha1.Phase
		ready  bool
		silent float64
		want   v1alpha1.Phase
		commit bool
		again  time.Duration
	}{
		"a ready one":                           {v1alpha1.PhaseAwake, true, -10, v1alpha1.PhaseAwake, false, 5 * time.Second},
		"a ready one, for long":                 {v1alpha1.PhaseAwake, true, -301, v1alpha1.PhaseAwake, false, 5 * time.Second},
		"a ready one, for long, after the step": {v1alpha1.PhaseFallingAsleep, true, -301, v1alpha1.PhaseAwake, false, 5 * time.Second},
		"one that isn't":                        {v1alpha1.PhaseAwake, false, -299, v1alpha1.PhaseAwake, false, 5 * time.Second},
		"one that isn't, for long":              {v1alpha1.PhaseAwake, false, -301, v1alpha1.PhaseFallingAsleep, false, planner.Settle},
		"one that isn't, for long, after the step": {
			v1alpha1.PhaseFallingAsleep, false, -301, v1alpha1.PhaseFallingAsleep, true, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Lobby(c.phase, fixture.At(-600))
			o := seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Phase = &time.Time{}, falling
				lost := seen.Standing("resolver-2")
				lost.Ready, lost.Reachable, lost.SilentSince, lost.Err = c.ready, false, fixture.At(c.silent), errors.New("timeout")
				lost.Listening = nil
				o.Resolvers = append(o.Resolvers, lost)
			})
			p := seen.Plan(fixture.T0, es, o, planner.Findings{})
			if p.Phase != c.want || p.Commit != c.commit || p.RequeueAfter.Duration() != c.again {
				t.Errorf("%s, commit %v, again in %s (%s); want %s, %v, %s", p.Phase, p.Commit, p.RequeueAfter, p.Idle.Reason, c.want, c.commit, c.again)
			}
			if c.want == v1alpha1.PhaseAwake && !strings.Contains(p.Idle.Reason, "resolver-2 doesn't answer: timeout") {
				t.Errorf("it is awake because: %s", p.Idle.Reason)
			}
		})
	}
}

// Servers that don't come up are no other case.
func TestASilentResolverThatIsReadyKeepsAServiceWaking(t *testing.T) {
	for name, c := range map[string]struct {
		ready bool
		want  v1alpha1.Phase
	}{"ready": {true, v1alpha1.PhaseWaking}, "not": {false, v1alpha1.PhaseFallingAsleep}} {
		t.Run(name, func(t *testing.T) {
			o := seen.Of(1)
			o.Nobody, o.NoneUpSince, o.NoneLastingSince = true, fixture.At(-600), fixture.At(-600)
			o.Resolvers = append(o.Resolvers, endpoints.Resolver{UID: "2", PodName: "resolver-2", Ready: c.ready, SilentSince: fixture.At(-301), Err: errors.New("timeout")})
			p := seen.Plan(fixture.T0, fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-600)), o, planner.Findings{})
			if p.Phase != c.want {
				t.Errorf("%s, want %s", p.Phase, c.want)
			}
		})
	}
}
