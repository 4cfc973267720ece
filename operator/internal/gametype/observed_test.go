package gametype

import "testing"

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
