package status

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

func TestOnlyTheEndOfASleepAddsToTheSums(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after v1alpha1.Phase
		obstacle      *obstacle.Obstacle
		seconds       int64
	}{
		"it wakes":                 {v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking, nil, 60},
		"it is awake at once":      {v1alpha1.PhaseAsleep, v1alpha1.PhaseAwake, nil, 60},
		"it sleeps on":             {v1alpha1.PhaseAsleep, v1alpha1.PhaseAsleep, nil, 0},
		"it can't be looked after": {v1alpha1.PhaseAsleep, v1alpha1.PhaseAwake, obstacle.New("x", "%s", "x"), 0},
		"it falls asleep":          {v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAsleep, nil, 0},
		"it comes up":              {v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, nil, 0},
	} {
		es := fixture.Lobby(c.before, fixture.At(0))
		Set(fixture.At(60), es, seen.Of(1), planner.Findings{Obstacle: c.obstacle}, planner.Plan{Phase: c.after})
		if es.Status.AsleepSeconds != c.seconds {
			t.Errorf("%s: asleep for %d s, want %d", name, es.Status.AsleepSeconds, c.seconds)
		}
	}
}

func TestNobodyKnowsWhatSomebodyElseScaledToZero(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{false, true} {
		es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(0))
		es.Status.AsleepRequests = &v1alpha1.AsleepRequests{CPU: resource.MustParse("1")}
		Set(fixture.At(60), es, seen.Of(0), planner.Findings{}, planner.Plan{Phase: v1alpha1.PhaseAsleep, Commit: commit})
		if noted := es.Status.AsleepRequests != nil; noted != commit {
			t.Errorf("put to sleep by Dormouse %v: the requests are noted: %v", commit, noted)
		}
	}
}
