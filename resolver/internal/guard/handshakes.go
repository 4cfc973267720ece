package guard

import (
	"container/list"
	"io"
	"sync"
)

// handshakes are a service's clients that haven't said what they want, the oldest
// first. Honest ones say it at once, and so the oldest makes room where there is
// none.
type handshakes struct {
	mu  sync.Mutex
	all list.List
}

// Handshake is one of them.
type Handshake struct {
	of *handshakes
	at *list.Element
}

// Handshake begins one. Evicted says that the oldest was closed to make room.
func (g *Guard) Handshake(c io.Closer, most int) (h Handshake, evicted bool) {
	s := &g.handshake
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.Len() >= most {
		oldest := s.all.Remove(s.all.Front()).(io.Closer)
		_ = oldest.Close()
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
