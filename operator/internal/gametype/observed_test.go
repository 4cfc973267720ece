package gametype

import (
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestWhatAFleetHasNotLetGoOfCounts(t *testing.T) {
	tests := map[string]struct {
		f    fleet
		want int32
	}{
		"as many as it is to have":              {fleet{desired: 3, active: 3}, 3},
		"some are still to come":                {fleet{desired: 3, active: 1}, 3},
		"some are still to go":                  {fleet{desired: 1, active: 3}, 3},
		"all that are left are Allocated":       {fleet{desired: 0, active: 3, allocated: 3}, 0},
		"more are Allocated than it is to have": {fleet{desired: 2, active: 3, allocated: 3}, 2},
		"one to go beside an Allocated one":     {fleet{desired: 4, active: 5, allocated: 1}, 5},
	}
	for name, test := range tests {
		if got := test.f.counted(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// The last revision that has had a Ready Server is kept whatever the history's limit, as long as no
// later one has.
func TestTheRevisionThatAWakeMayNeedIsKept(t *testing.T) {
	spec := &v1alpha1.GameTypeSpec{Replicas: new(int32(0)), RevisionHistoryLimit: new(int32(0))}
	fleets := []fleet{
		{name: "a", uid: "a", number: 1, observed: true, everReady: true},
		{name: "b", uid: "b", number: 2, observed: true},
		{name: "c", uid: "c", number: 3, observed: true, current: true},
	}
	if p := makePlan(t0, spec, fleets, nil, 3); len(p.remove) != 1 || p.remove[0].name != "b" {
		t.Errorf("forgotten are %+v, want b alone", p.remove)
	}
	fleets[2].everReady = true
	if p := makePlan(t0, spec, fleets, nil, 3); len(p.remove) != 2 {
		t.Errorf("once the newest has been Ready %d are forgotten, want both", len(p.remove))
	}
}
