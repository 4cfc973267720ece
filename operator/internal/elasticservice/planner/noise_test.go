package planner_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// A stranger who sends a datagram now and then costs no server, whatever its source address.
func TestSessionsWithoutAValidatedAddressKeepNoServiceAwake(t *testing.T) {
	for name, c := range map[string]struct {
		sessions, unvalidated int32
		phase                 v1alpha1.Phase
	}{
		"all of them noise":             {20, 20, v1alpha1.PhaseFallingAsleep},
		"one is a player":               {20, 19, v1alpha1.PhaseAwake},
		"an older resolver":             {20, 0, v1alpha1.PhaseAwake},
		"one that counts badly":         {20, 21, v1alpha1.PhaseFallingAsleep},
		"one that counts below nothing": {20, -1, v1alpha1.PhaseAwake},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Never(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-7200)))
			o := seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Service.Spec.Selector = nil
				r := &o.Resolvers[0]
				r.Sessions, r.Unvalidated, r.LastActive = c.sessions, c.unvalidated, fixture.At(-3600)
			})
			p := seen.Plan(fixture.T0, es, o, planner.Findings{})
			if p.Phase != c.phase || p.Sessions != c.sessions {
				t.Errorf("%s with %d sessions (%s), want %s with %d", p.Phase, p.Sessions, p.Idle.Reason, c.phase, c.sessions)
			}
		})
	}
}

// Of what another resolver has, none makes up for a player of this one.
func TestNoiseAtOneResolverHidesNoPlayerAtAnother(t *testing.T) {
	es := fixture.Never(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-7200)))
	o := seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
		o.Service.Spec.Selector = nil
		o.Resolvers = append(o.Resolvers, seen.Standing("resolver-2"))
		o.Resolvers[0].Unvalidated, o.Resolvers[1].Sessions = 1, 1
	})
	if p := seen.Plan(fixture.T0, es, o, planner.Findings{}); p.Phase != v1alpha1.PhaseAwake {
		t.Errorf("%s (%s), want Awake", p.Phase, p.Idle.Reason)
	}
}

// Whether noise or not, an endpoint that carries sessions stays.
func TestANoisyResolverKeepsItsEndpoint(t *testing.T) {
	terminating := map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating}
	es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-30))
	o := seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
		o.Resolvers[0].Sessions, o.Resolvers[0].Unvalidated, o.Resolvers[0].LastActive = 1, 1, fixture.At(-600)
		o.Resolvers[0].SteppedDown = fixture.T0.Add(-time.Minute)
	}), fixture.Lobby("", fixture.At(0)), terminating)
	if diff := cmp.Diff(terminating, seen.Plan(fixture.T0, es, o, planner.Findings{}).Roles); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
}
