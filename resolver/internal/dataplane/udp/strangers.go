package udp

import (
	"container/list"
	"sync"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// A UDP client proves to be one when it speaks again after its server has answered:
// what comes from an address that is not the sender's gets no further than the first.
// Sessions that have not come so far don't keep a service awake, and make room first.

// strangers are a service's sessions that have a server and are not proven, the oldest
// first.
type strangers struct {
	mu  sync.Mutex
	all list.List
	at  map[*session]*list.Element
	// making counts those that have given up their places and are not gone yet, in
	// whose places others are already.
	making int
}

// mostMaking bounds by how many sessions a service may have more for a service.Moment.
const mostMaking = 64

func (t *strangers) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.gone || s.proven.Load() {
		return
	}
	if t.at == nil {
		t.at = map[*session]*list.Element{}
	}
	t.at[s] = t.all.PushBack(s)
}

// remove is for one that is proven.
func (t *strangers) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.take(s)
}

func (t *strangers) take(s *session) {
	if e, is := t.at[s]; is {
		t.all.Remove(e)
		delete(t.at, s)
	}
}

// evict takes the oldest one off; nil: there is none, or too many are on their way out.
func (t *strangers) evict() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all.Front()
	if e == nil || t.making >= mostMaking {
		return nil
	}
	s := t.all.Remove(e).(*session)
	delete(t.at, s)
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

// prove takes in that the client is one.
func (s *session) prove() {
	s.proven.Store(true)
	s.port.udp.strangers.remove(s)
}

// makeRoom ends the oldest session that is not proven; false: there is none.
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

// takeSession takes a session's place. Where there is none left for the service one of its
// strangers gives up its own.
func (p *Port) takeSession() bool {
	if p.TakeSession() {
		return true
	}
	if !p.makeRoom() {
		return false
	}
	p.ForceSession() // until that one is gone
	return true
}
