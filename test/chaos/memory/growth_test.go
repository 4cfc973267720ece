package memory

import (
	"testing"
	"time"
)

const mib = 1 << 20

func TestMemoryIsFlatUntilItGrowsByAQuarterAndEightMiB(t *testing.T) {
	for name, c := range map[string]struct {
		resident       func(i int) float64
		samples        int
		assessed, grew bool
	}{
		"the same all the time":  {func(int) float64 { return 40 * mib }, 60, true, false},
		"it grows all the time":  {func(i int) float64 { return float64(40+i) * mib }, 60, true, true},
		"it grows at first only": {func(i int) float64 { return float64(40+min(i, 14)) * mib }, 60, true, false},
		"one sample is high":     {func(i int) float64 { return map[bool]float64{true: 400, false: 40}[i == 55] * mib }, 60, true, false},
		"a small one doubles":    {func(i int) float64 { return float64(4+i/15) * mib }, 60, true, false},
		"a large one by a tenth": {func(i int) float64 { return float64(400+i) * mib }, 60, true, false},
		"it lives too shortly":   {func(i int) float64 { return float64(40+10*i) * mib }, 20, false, false},
		"nothing was seen of it": {nil, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var l Life
			for i := range c.samples {
				l.Samples = append(l.Samples, Sample{At: time.Unix(0, 0).Add(time.Duration(i) * sampleInterval), Resident: c.resident(i)})
			}
			if _, _, assessed, grew := l.Growth(); assessed != c.assessed || grew != c.grew {
				t.Errorf("judged %v, grew %v; want %v, %v", assessed, grew, c.assessed, c.grew)
			}
		})
	}
}
