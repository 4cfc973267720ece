package traffic

import (
	"math/bits"
	"time"
)

// Histogram counts durations in steps of at most 1/64 of them, so that those of
// several processes can be added up.
type Histogram map[int]int64

// fine is how many bits below the highest one tell durations apart.
const fine = 6

func (h Histogram) add(d time.Duration) { h[step(d)]++ }

func step(d time.Duration) int {
	n := uint64(max(d.Nanoseconds(), 0))
	shift := max(bits.Len64(n)-fine-1, 0)
	return shift<<fine + int(n>>shift)
}

// length is the middle of a step.
func length(step int) time.Duration {
	if step < 2<<fine {
		return time.Duration(step)
	}
	shift := step>>fine - 1
	low := int64(step-shift<<fine) << shift
	return time.Duration(low + int64(1)<<shift/2)
}

// Merge adds what another one counted.
func (h Histogram) Merge(other Histogram) {
	for step, n := range other {
		h[step] += n
	}
}

// Rank is the duration that the part q of all don't exceed; 0 of none.
func (h Histogram) Rank(q float64) time.Duration {
	var total, below int64
	highest := 0
	for step, n := range h {
		total += n
		highest = max(highest, step)
	}
	for step := range highest + 1 {
		if below += h[step]; below > 0 && float64(below) >= q*float64(total) {
			return length(step)
		}
	}
	return 0
}
