package hold

import (
	"cmp"
	"math"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Load is what a server carries, as far as one resolver knows.
type Load struct {
	// Players and Capacity are what its game last reported. A Capacity of 0 is one
	// that isn't known.
	Players, Capacity int
	// Counts says that the game was seen to count its players. Another reports
	// none, whoever plays.
	Counts bool
	// Sessions are the clients that this resolver gave the server, and Fresh those
	// among them that the report can't have counted yet.
	Sessions, Fresh int
}

// Expected is how many players the server has, or is about to have.
func (l Load) Expected() int {
	if l.Counts {
		return l.Players + l.Fresh
	}
	return max(l.Players+l.Fresh, l.Sessions)
}

// Full says that the server has no room for another player.
func (l Load) Full() bool { return l.free() <= 0 }

func (l Load) free() int {
	if l.Capacity <= 0 {
		return math.MaxInt
	}
	return l.Capacity - l.Expected()
}

// fuller compares two loads: above 0 says that a has less room left than b, or,
// where that isn't known, more players.
func fuller(a, b Load) int {
	return cmp.Or(cmp.Compare(b.free(), a.free()), cmp.Compare(a.Expected(), b.Expected()))
}

// Choose picks the server for a new client among n; -1: none has room. It looks at
// each once, from start on, so that of several that are alike Spread takes another
// each time when start does; Packed takes the first of all. Load is not ok for a
// server that takes no clients.
func Choose(policy v1alpha1.Balance, n, start int, load func(i int) (l Load, ok bool)) int {
	if policy == v1alpha1.BalancePacked {
		start = 0
	}
	best := -1
	var least Load
	for i := range n {
		at := start + i
		if at >= n {
			at -= n
		}
		l, ok := load(at)
		if !ok || l.Full() {
			continue
		}
		order := 1
		if best >= 0 {
			order = fuller(least, l)
			if policy == v1alpha1.BalancePacked {
				order = -order
			}
		}
		if order > 0 {
			best, least = at, l
		}
	}
	return best
}
