// Package startwindow bounds how many Servers of all Fleets start at once. What is behind a start is the
// same for all: the API server, the scheduler and the nodes. With thousands of starts at once each waits
// for all others. The package knows no Servers, only their numbers.
package startwindow

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// Most is how many of all Fleets start at once.
	Most = 100
	// minStarting is how many of one Fleet may, whatever the others do.
	minStarting = 8
	// Lasts is for how long a Server counts as starting that isn't up: its game may take
	// minutes, and what it costs the cluster is over sooner. So at least Most start in this
	// time.
	Lasts = 4 * time.Second
)

// Window counts the Servers that start, by their Fleets. The zero value counts none.
type Window struct {
	mu     sync.Mutex
	fleets map[types.NamespacedName]share
}

// share is how many of a Fleet's Servers start, and until when they count.
type share struct {
	servers int
	until   time.Time
}

// Take notes a Fleet's Servers that start, with when each was made, and that it makes so many of those
// that it wants as it returns.
func (w *Window) Take(now time.Time, fleet types.NamespacedName, starting map[string]time.Time, wants int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	servers := len(starting)
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
	takes := min(wants, max(0, Most-all, minStarting-servers))
	var last time.Time // when the last one was made
	if takes > 0 {
		last = now
	} else {
		for _, made := range starting {
			if made.After(last) {
				last = made
			}
		}
	}
	w.fleets[fleet] = share{servers + takes, last.Add(Lasts)}
	return takes
}
