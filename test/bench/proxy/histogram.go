package main

import (
	"math/bits"
	"time"
)

// histogram counts durations in steps of at most 1/64 of them, so that those of
// several processes can be added up.
type histogram map[int]int64

// fine is how many bits below the highest one tell durations apart.
const fine = 6

func (h histogram) add(d time.Duration) { h[step(d)]++ }

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

func (h histogram) merge(other histogram) {
	for step, n := range other {
		h[step] += n
	}
}

// rank is the duration that the part q of all don't exceed; 0 of none.
func (h histogram) rank(q float64) time.Duration {
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
