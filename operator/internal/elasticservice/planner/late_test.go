package planner_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

func TestAResolverThatShouldListenIsAskedAgain(t *testing.T) {
	silent := func(change func(*endpoints.Resolver)) endpoints.Resolver {
		r := seen.Standing("resolver-1")
		r.Listening = nil
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		phase    v1alpha1.Phase
		resolver endpoints.Resolver
		want     time.Duration
	}{
		"soon, where clients wait for it":       {v1alpha1.PhaseAsleep, silent(func(*endpoints.Resolver) {}), 200 * time.Millisecond},
		"in a while, where servers serve":       {v1alpha1.PhaseAwake, silent(func(*endpoints.Resolver) {}), time.Second},
		"seldom, when it can't listen":          {v1alpha1.PhaseAsleep, silent(func(r *endpoints.Resolver) { r.PortErrors = []string{"port 10001: in use"} }), 5 * time.Second},
		"seldom, when it doesn't answer":        {v1alpha1.PhaseAsleep, silent(func(r *endpoints.Resolver) { r.Reachable = false }), 5 * time.Second},
		"not, when it isn't ready":              {v1alpha1.PhaseAsleep, silent(func(r *endpoints.Resolver) { r.Ready = false }), 0},
		"not, when it listens on all it should": {v1alpha1.PhaseAsleep, seen.Standing("resolver-1"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			es := fixture.Lobby(c.phase, fixture.At(-3600))
			es.Spec.Idle = nil
			o := seen.Of(0)
			if c.phase == v1alpha1.PhaseAwake {
				o = seen.Of(1, seen.UpServer)
			}
			o.Resolvers = []endpoints.Resolver{c.resolver}
			if got := seen.Plan(fixture.At(0), es, o, planner.Findings{}).RequeueAfter.Duration(); got != c.want {
				t.Errorf("requeue after %s, want %s", got, c.want)
			}
		})
	}
}

func TestAFrontThatNobodyListensForIsLookedAtSeldom(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		ready, listens bool
		since          time.Duration
		want           time.Duration
	}{
		"a listener about to open":         {true, false, time.Second, 200 * time.Millisecond},
		"one that doesn't open":            {true, false, time.Minute, 5 * time.Second},
		"no resolver that is ready":        {false, false, time.Second, 0},
		"a resolver that does so":          {true, true, time.Second, 0},
		"one that isn't ready but listens": {false, true, time.Second, 0},
	} {
		es := &v1alpha1.ElasticService{}
		es.Status.Front = &v1alpha1.FrontStatus{ResolverPort: 12345}
		es.Status.Conditions = []metav1.Condition{{
			Type: conditions.FrontReady, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-c.since)),
		}}
		p := planner.Plan{}
		p.AwaitFront(now, es, planner.Observed{Resolvers: []endpoints.Resolver{{UID: "1", Ready: c.ready, Reachable: true, Listening: map[int32]bool{12345: c.listens}}}})
		if p.RequeueAfter.Duration() != c.want {
			t.Errorf("%s: it is looked at again after %s, want %s", name, p.RequeueAfter.Duration(), c.want)
		}
	}
}
