package guard

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Guard tracks one service's clients. Its zero value is ready.
type Guard struct {
	service   bucket
	bySource  lazySketch
	answers   bucket
	byPrefix  lazySketch
	handshake handshakes

	mu sync.Mutex
	// sources are the sources that have clients.
	sources map[key]*source
}

// source is a source that has clients. The guard's lock guards it, but for the budget.
type source struct {
	held, sessions int32
	// kept bounds the bytes that are kept.
	kept *conn.Budget
}

// Stay is one client's, from Admit to Leave. It is for one goroutine at a time.
type Stay struct {
	guard *Guard
	rules *Rules
	from  netip.Addr
	// source is nil where nothing is counted by source.
	source      *source
	held, asked bool
}

// Admit begins a client's stay; a reason is why it can't. Budget bounds everything that is
// kept.
func (g *Guard) Admit(rules *Rules, from netip.Addr, budget *conn.Budget) (Stay, proto.Reason) {
	v := Stay{guard: g, rules: rules, from: from}
	if rules.PerSource == (Limits{}) {
		return v, ""
	}
	k := sourceOf(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sources[k]
	switch {
	case s == nil:
		s = &source{kept: budget}
		if most := rules.PerSource.Bytes; most > 0 {
			s.kept = budget.Part(most)
		}
		if g.sources == nil {
			g.sources = map[key]*source{}
		}
		g.sources[k] = s
	case over(s.sessions, rules.PerSource.Sessions):
		return v, proto.SourceSessions
	}
	s.sessions++
	v.source = s
	return v, ""
}

// Permitted reports whether a client may wake the service, and wait for it, as far as its address goes.
func (v *Stay) Permitted() bool { return v.rules.Permits(v.from) }

// Hold counts a client that has no backend so far; the reason is why it can't wait for one.
func (v *Stay) Hold() proto.Reason {
	if !v.rules.Permits(v.from) {
		return proto.Denied
	}
	return v.Hear()
}

// Hear is Hold for a client that gets no backend in any case, but is told why.
func (v *Stay) Hear() proto.Reason {
	if v.source == nil || v.held {
		return ""
	}
	v.guard.mu.Lock()
	defer v.guard.mu.Unlock()
	if over(v.source.held, v.rules.PerSource.Connections) {
		return proto.SourceConnections
	}
	v.source.held++
	v.held = true
	return ""
}

// Ask is called for a client that would wake the service or wait for it; the reason is why it
// may not. Refused is why no client may as things are now, or empty: the stay may have begun when
// the service slept, or was up. It counts the client once.
func (v *Stay) Ask(now time.Time, refused proto.Reason) proto.Reason {
	if v.asked {
		return ""
	}
	if !v.rules.Permits(v.from) {
		return proto.Denied
	}
	if refused != "" {
		return refused
	}
	if reason := v.Hear(); reason != "" {
		return reason
	}
	if n := v.rules.PerSourceRate; n > 0 && !v.guard.bySource.take(sourceOf(v.from), since(now), perMinute(n)) {
		return proto.SourceRate
	}
	if n := v.rules.PerServiceRate; n > 0 && !v.guard.service.take(since(now), perMinute(n)) {
		return proto.ServiceRate
	}
	v.asked = true
	return ""
}

// Served is called once the client has its backend.
func (v *Stay) Served() {
	if v.held {
		v.guard.mu.Lock()
		defer v.guard.mu.Unlock()
		v.source.held--
		v.held = false
	}
}

// Leave ends the stay. The client's bytes must have been given back.
func (v *Stay) Leave() {
	if v.source == nil {
		return
	}
	v.Served()
	g := v.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.source.sessions--; v.source.sessions == 0 {
		delete(g.sources, sourceOf(v.from))
	}
	v.source = nil
}

// Held is how many clients without a backend are counted by source.
func (g *Guard) Held() (n int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.sources {
		n += s.held
	}
	return n
}

// Budget bounds the bytes that are kept of the client. All is the budget of all clients
// together.
func (v *Stay) Budget(all *conn.Budget) *conn.Budget {
	if v.source == nil {
		return all
	}
	return v.source.kept
}

// over reports whether there is no room for one more.
func over(n, most int32) bool { return most > 0 && n >= most }

// Share divides what all services share, so that one that is flooded leaves some for the
// others, as conn.LeftOfShare has it.
type Share struct {
	most int64
	used atomic.Int64
	// taking is held while places are taken, so that one who asks in vain never counts for a moment and has
	// another refused. Giving back needs no lock.
	taking sync.Mutex
}

// NewShare makes one of a number of places.
func NewShare(most int) *Share { return &Share{most: int64(most)} }

// Take takes n places for a service that has own already; false: it has its share, or there are
// none left.
func (s *Share) Take(own *atomic.Int32, n int32) bool {
	s.taking.Lock()
	defer s.taking.Unlock()
	had, used := int64(own.Load()), s.used.Load()
	if conn.LeftOfShare(had, used, s.most) <= 0 || used+int64(n) > s.most {
		return false
	}
	s.Force(own, n)
	return true
}

// Force takes n places even where they are not left, or gives them back.
func (s *Share) Force(own *atomic.Int32, n int32) {
	own.Add(n)
	s.used.Add(int64(n))
}

// Used is how many are taken.
func (s *Share) Used() int { return int(s.used.Load()) }
