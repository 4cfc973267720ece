package fleet

import (
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

// room notes how many of a Fleet's Servers start, the last of which was made at, and returns how
// many more may.
func (w *window) room(now time.Time, fleet types.NamespacedName, servers int, at time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fleets == nil {
		w.fleets = map[types.NamespacedName]share{}
	}
	delete(w.fleets, fleet)
	if servers > 0 {
		w.fleets[fleet] = share{servers, at.Add(startingFor)}
	}
	all := 0
	for key, s := range w.fleets {
		if !now.Before(s.until) {
			delete(w.fleets, key)
			continue
		}
		all += s.servers
	}
	return max(0, maxStarting-all, minStarting-servers)
}

// starts are a Fleet's Servers that start, with when they were made.
type starts map[string]time.Time

// over drops those that are up, gone, or have been starting for long.
func (s starts) over(now time.Time, servers []server) {
	if len(s) == 0 {
		return
	}
	still := make(map[string]bool, len(s))
	for i := range servers {
		if at, ok := s[servers[i].name]; ok && !servers[i].up() && !servers[i].deleting && now.Sub(at) < startingFor {
			still[servers[i].name] = true
		}
	}
	for name := range s {
		if !still[name] {
			delete(s, name)
		}
	}
}

// last is when the last of them was made.
func (s starts) last() (at time.Time) {
	for _, made := range s {
		if made.After(at) {
			at = made
		}
	}
	return at
}

// limitRemovals leaves the deletion of Servers to later passes for which there is no room.
func (p *plan) limitRemovals(now time.Time, servers []server) {
	going := 0
	for i := range servers {
		if s := &servers[i]; s.deleting && now.Sub(s.deleted) < goingFor {
			going++
		}
	}
	if room := max(0, maxGoing-going); len(p.remove) > room {
		p.remove = p.remove[:room]
		p.requeueAfter.AtMost(windowRetry)
	}
}

// limit leaves the creation of Servers for which there is no room to later passes.
func (p *plan) limit(room int) {
	if p.create <= room {
		return
	}
	p.create = room
	if p.places != nil {
		p.places = p.places[:room]
	}
	p.requeueAfter.AtMost(windowRetry)
}
