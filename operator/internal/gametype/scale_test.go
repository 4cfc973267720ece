package gametype

import (
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A manifest has replicas and no scale. Applying it again must change nothing.
func TestAManifestThatIsAppliedAgainChangesNothing(t *testing.T) {
	scale := func(replicas, of int32) *v1alpha1.GameTypeScale {
		return &v1alpha1.GameTypeScale{Replicas: replicas, Of: &of}
	}
	for name, c := range map[string]struct {
		replicas *int32
		is       *v1alpha1.GameTypeScale
		want     int32
	}{
		"a new one":                                     {replicas: new(int32(2)), want: 2},
		"a new one that says nothing":                   {want: 1},
		"a new one that begins asleep":                  {replicas: new(int32(2)), is: &v1alpha1.GameTypeScale{}, want: 0},
		"asleep":                                        {replicas: new(int32(2)), is: scale(0, 2), want: 0},
		"awake":                                         {replicas: new(int32(2)), is: scale(2, 2), want: 2},
		"awake, as an autoscaler has it":                {replicas: new(int32(2)), is: scale(5, 2), want: 5},
		"asleep, with another number":                   {replicas: new(int32(4)), is: scale(0, 2), want: 0},
		"awake, with another number":                    {replicas: new(int32(4)), is: scale(5, 2), want: 4},
		"told to have none":                             {replicas: new(int32(0)), is: scale(2, 2), want: 0},
		"told to have some again":                       {replicas: new(int32(2)), is: scale(0, 0), want: 2},
		"a manifest that has none, woken by a player":   {replicas: new(int32(0)), is: scale(1, 0), want: 1},
		"a game that an earlier version put to sleep":   {replicas: new(int32(0)), want: 0},
		"scaled while the controller had not seen it":   {replicas: new(int32(2)), is: &v1alpha1.GameTypeScale{Replicas: 3}, want: 3},
		"a manifest that takes the number out is for 1": {is: scale(3, 3), want: 1},
	} {
		got := scaleOf(&v1alpha1.GameTypeSpec{Replicas: c.replicas, Scale: c.is})
		if got.Replicas != c.want {
			t.Errorf("%s: %d, want %d", name, got.Replicas, c.want)
		}
		if again := scaleOf(&v1alpha1.GameTypeSpec{Replicas: c.replicas, Scale: &got}); again.Replicas != got.Replicas {
			t.Errorf("%s: it comes to %d and then to %d", name, got.Replicas, again.Replicas)
		}
	}
}
