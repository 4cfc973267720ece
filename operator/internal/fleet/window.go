package fleet

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds of how many Servers start at once. What is behind a start is the same for all: the API
// server, the scheduler and the nodes. With thousands of starts at once each waits for all others.
const (
	// maxStarting is how many of all Fleets start at once.
	maxStarting = 100
	// minStarting is how many of one Fleet may, whatever the others do.
	minStarting = 8
	// startingFor is for how long a Server counts as starting that isn't up: its game may take
	// minutes, and what it costs the cluster is over sooner. So at least maxStarting start in this
	// time.
	startingFor = 4 * time.Second
	// windowRetry is when a Fleet looks again for room.
	windowRetry = 100 * time.Millisecond
)

// Bounds of how many of a Fleet's Servers go at once: with thousands each would wait for all others.
const (
	maxGoing = 200
	// goingFor is for how long a deleted Server counts as going. One that is still there has players
	// or a node that doesn't answer, which keeps others from nothing.
	goingFor = 15 * time.Second
)

// window counts the Servers that start, by their Fleets.
type window struct {
	mu     sync.Mutex
	fleets map[types.NamespacedName]share
}

// share is how many of a Fleet's Servers start, and until when they count.
type share struct {
	servers int
	until   time.Time
}

// take notes how many of a Fleet's Servers start, the last of which was made at, and that it makes
// so many of those that it wants as it returns.
func (w *window) take(now time.Time, fleet types.NamespacedName, servers int, at time.Time, wants int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fleets == nil {
		w.fleets = map[types.NamespacedName]share{}
	}
	delete(w.fleets, fleet)
	if servers == 0 && wants == 0 {
		return 0
	}
	all := servers
	for key, s := range w.fleets {
		if !now.Before(s.until) {
			delete(w.fleets, key)
			continue
		}
		all += s.servers
	}
	takes := min(wants, max(0, maxStarting-all, minStarting-servers))
	if takes > 0 {
		at = now
	}
	w.fleets[fleet] = share{servers + takes, at.Add(startingFor)}
	return takes
}

// times are Servers by their names, with when they were made, or deleted, by this process' clock.
type times map[string]time.Time

// up drops those that are up, gone, or have been starting for long.
func (s times) up(now time.Time, servers []server) {
	if len(s) == 0 {
		return
	}
	still := make(map[string]bool, len(s))
	for i := range servers {
		if at, ok := s[servers[i].name]; ok && !servers[i].up() && !servers[i].deleting && now.Sub(at) < startingFor {
			still[servers[i].name] = true
		}
	}
	maps.DeleteFunc(s, func(name string, _ time.Time) bool { return !still[name] })
}

// last is when the last of them was made.
func (s times) last() (at time.Time) {
	for _, made := range s {
		if made.After(at) {
			at = made
		}
	}
	return at
}

// gone drops those of a Fleet's deleted Servers that are gone, or have been going for long.
func (s times) gone(now time.Time, servers []server) {
	if len(s) == 0 {
		return
	}
	there := make(map[string]bool, len(s))
	for i := range servers {
		if _, ok := s[servers[i].name]; ok {
			there[servers[i].name] = true
		}
	}
	maps.DeleteFunc(s, func(name string, at time.Time) bool { return !there[name] || now.Sub(at) >= goingFor })
}

// limitRemovals leaves the deletion of Servers to later passes for which there is no room beside
// those that go.
func (p *plan) limitRemovals(going int) {
	if room := max(0, maxGoing-going); len(p.remove) > room {
		p.remove = p.remove[:room]
		p.requeueAfter.AtMost(windowRetry)
	}
}

// limit leaves the creation of Servers beyond some to later passes.
func (p *plan) limit(some int) {
	if p.create <= some {
		return
	}
	p.create = some
	if p.places != nil {
		p.places = p.places[:some]
	}
	p.requeueAfter.AtMost(windowRetry)
}
