// Package memory watches how much memory the programs use while they are played with, and judges
// whether it grows.
package memory

import (
	"slices"
	"time"
)

// What memory is judged by. A process's resident memory is flat if the median
// of the last quarter of its life in the run is not above the median of the
// second quarter by more than a quarter and by more than 8 MiB: a program that
// has just started grows, and a small one may double without a leak. Lives
// shorter than two minutes are too short to tell.
const (
	// Rule says so to a report's reader.
	Rule = "resident memory, for each process observed for 2 minutes or longer: the median of the last quarter of its samples " +
		"is at most 25% or 8 MiB (whichever is more) above the median of the second quarter"
	assessedLife = 2 * time.Minute
	growthShare  = 1.25
	growthBytes  = 8 << 20
)

// Sample is a process's own word of itself.
type Sample struct {
	At         time.Time
	Resident   float64
	Heap       float64
	Goroutines float64
	FDs        float64
}

// Life is what was seen of one process.
type Life struct {
	Program, Pod string
	// Started is when the process started, by its own word, in Unix seconds.
	Started float64
	Samples []Sample
}

// Observed is for how long it was.
func (l Life) Observed() time.Duration {
	if len(l.Samples) == 0 {
		return 0
	}
	return l.Samples[len(l.Samples)-1].At.Sub(l.Samples[0].At)
}

// Growth gives the two medians, and whether the life is long enough to be
// judged and has grown.
func (l Life) Growth() (before, after float64, assessed, grew bool) {
	if len(l.Samples) < 8 {
		return 0, 0, false, false
	}
	quarter := len(l.Samples) / 4
	before = medianResident(l.Samples[quarter : 2*quarter])
	after = medianResident(l.Samples[len(l.Samples)-quarter:])
	assessed = l.Observed() >= assessedLife
	return before, after, assessed, assessed && after > before*growthShare && after > before+growthBytes
}

func medianResident(samples []Sample) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = s.Resident
	}
	slices.Sort(values)
	return values[len(values)/2]
}
