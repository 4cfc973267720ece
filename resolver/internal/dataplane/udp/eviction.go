package udp

import (
	"sync"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// A UDP client's address is validated when the client sends something after its backend has
// answered: a sender with a forged source address, which doesn't see the answer, gets no further
// unless it sends from that address again.
// Sessions without a validated address don't keep a service awake, and make room first.

// strangers are a service's sessions that have a backend and no validated address, the oldest
// first.
type strangers struct {
	mu             sync.Mutex
	oldest, newest *session
	// making counts the sessions that have given up their places to others and are not gone
	// yet.
	making int
}

// mostMaking bounds by how many sessions a service may exceed its places meanwhile.
const mostMaking = 64

// add takes in that a session has a backend.
func (t *strangers) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.gone {
		return
	}
	s.count()
	if s.validated.Load() {
		return
	}
	s.stranger = true
	if s.older = t.newest; s.older == nil {
		t.oldest = s
	} else {
		s.older.newer = s
	}
	t.newest = s
}

// remove removes a session whose address is validated.
func (t *strangers) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.take(s)
	if s.counted != nil {
		before := s.counted
		s.count()
		before.Add(-1)
	}
}

// uncount takes in that a session has no backend any more. Until then it counts, though it may
// have made room.
func (t *strangers) uncount(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.counted != nil {
		s.counted.Add(-1)
		s.counted = nil
	}
}

// count counts a session that has a backend for its service's idleness. One that only queries
// doesn't count. The lock of the strangers guards it.
func (s *session) count() {
	switch a := s.port.Active; {
	case s.query:
		return
	case s.validated.Load():
		s.counted = &a.Relayed
	default:
		s.counted = &a.Unvalidated
	}
	s.counted.Add(1)
}

func (t *strangers) take(s *session) {
	if !s.stranger {
		return
	}
	if s.older == nil {
		t.oldest = s.newer
	} else {
		s.older.newer = s.newer
	}
	if s.newer == nil {
		t.newest = s.older
	} else {
		s.newer.older = s.older
	}
	s.stranger, s.older, s.newer = false, nil, nil
}

// evict removes the oldest session and returns it; nil: there is none, or too many are about to
// end.
func (t *strangers) evict() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.oldest
	if s == nil || t.making >= mostMaking {
		return nil
	}
	t.take(s)
	s.evicted = true
	t.making++
	return s
}

// gone takes in that a session is over and its place given back.
func (t *strangers) gone(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.gone = true
	t.take(s)
	if s.evicted {
		t.making--
	}
}

// validate notes that the client receives what is sent to its address.
func (s *session) validate() {
	s.validated.Store(true)
	s.port.udp.strangers.remove(s)
}

// makeRoom ends the oldest session without a validated address; false: there is none.
func (p *Port) makeRoom() bool {
	s := p.udp.strangers.evict()
	if s == nil {
		return false
	}
	p.Counts.Refused(string(proto.Evicted))
	s.line.Refused(string(proto.Evicted))
	s.over("")
	return true
}

// takeSession takes a session's place. Where the service has none left one of its strangers
// gives up its own.
func (p *Port) takeSession() bool {
	if p.TakeSession() {
		return true
	}
	if !p.makeRoom() {
		return false
	}
	p.ForceSession() // until the stranger is gone
	return true
}
