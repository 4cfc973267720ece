package guard

import (
	"container/list"
	"sync"
)

// Cutter is a connection that can be cut while its goroutine waits on it.
type Cutter interface{ Cut() }

// handshakes are a service's clients that haven't said what they want, the oldest first. Honest
// ones say it at once, so the oldest makes room where there is none.
type handshakes struct {
	mu  sync.Mutex
	all list.List
}

// Handshake is one of them.
type Handshake struct {
	of *handshakes
	at *list.Element
}

// Handshake begins one. Evicted reports whether the oldest was cut to make room.
func (g *Guard) Handshake(c Cutter, most int) (h Handshake, evicted bool) {
	s := &g.handshake
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.Len() >= most {
		s.all.Remove(s.all.Front()).(Cutter).Cut()
		evicted = true
	}
	return Handshake{s, s.all.PushBack(c)}, evicted
}

// End ends it. One that was evicted has ended already.
func (h Handshake) End() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.all.Remove(h.at)
}
