package hold

import (
	"cmp"
	"math"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Load is a backend's load, as far as one resolver knows.
type Load struct {
	// Players and Capacity are what its game last reported. A Capacity of 0 is unknown.
	Players, Capacity int
	// Counts reports whether the game is known to count its players. Another one reports none,
	// whoever plays.
	Counts bool
	// Sessions are the clients that this resolver gave the backend, and Fresh those among them
	// that the report can't have counted yet.
	Sessions, Fresh int
}

// Expected is how many players the backend has, or is about to have.
func (l Load) Expected() int {
	if l.Counts {
		return l.Players + l.Fresh
	}
	return max(l.Players+l.Fresh, l.Sessions)
}

// Full reports whether the backend has no room for another player.
func (l Load) Full() bool { return l.room().free <= 0 }

// room is the room that a load leaves.
type room struct {
	// free is how many players there is room for; without a bound where that isn't known.
	free, players int
}

func (l Load) room() room {
	r := room{free: math.MaxInt, players: l.Expected()}
	if l.Capacity > 0 {
		r.free = l.Capacity - r.players
	}
	return r
}

// compare is above 0 for more room than another has or, where neither is known, for fewer
// players.
func (r room) compare(o room) int {
	return cmp.Or(cmp.Compare(r.free, o.free), cmp.Compare(o.players, r.players))
}

// Choose picks the backend for a new client among n; -1: none has room. It looks at each once.
// Among equals Spread takes the first from start on, so that a start that moves on takes
// another each time, and Packed takes the first of all. Load is not ok for a backend that takes
// no clients.
func Choose(policy v1alpha1.Balance, n, start int, load func(i int) (l Load, ok bool)) int {
	better := 1
	if policy == v1alpha1.BalancePacked {
		start, better = 0, -1
	}
	best := -1
	var most room
	for i := range n {
		at := start + i
		if at >= n {
			at -= n
		}
		l, ok := load(at)
		if !ok {
			continue
		}
		if r := l.room(); r.free > 0 && (best < 0 || r.compare(most) == better) {
			best, most = at, r
		}
	}
	return best
}
