package relay

import (
	"context"
	"sync"
)

// Group has relays that a context cuts together. A function of the context for each relay would
// take as much memory as half a relay.
type Group struct {
	mu sync.Mutex
	// first begins the list of the relays; their links are guarded by the lock, too.
	first *Relay
	// over is set once the context has ended.
	over bool
}

// NewGroup makes a group without relays.
func NewGroup(ctx context.Context) *Group {
	g := &Group{}
	context.AfterFunc(ctx, g.cut)
	return g
}

// cut cuts all relays, each in its loop.
func (g *Group) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	for r := g.first; r != nil; r = r.next {
		r.loop().Do(r.cut)
	}
}

// add takes a relay in. Where the context has ended it is cut at once.
func (g *Group) add(r *Relay) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.group, r.next = g, g.first; r.next != nil {
		r.next.previous = r
	}
	g.first = r
	if g.over {
		r.loop().Do(r.cut)
	}
}

// leaveGroup has the relay's group forget it.
func (r *Relay) leaveGroup() {
	g := r.group
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.previous != nil {
		r.previous.next = r.next
	} else {
		g.first = r.next
	}
	if r.next != nil {
		r.next.previous = r.previous
	}
	r.group, r.previous, r.next = nil, nil, nil
}
