package files

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"dormouse.dev/dormouse/internal/callers"
)

// Bounds of wrong passwords.
const (
	// freeTries of an address have no delay. Each one after them doubles it, from firstDelay on.
	freeTries  = 5
	firstDelay = time.Second
	maxDelay   = time.Minute
	// forgetAfter is when the tries of an address begin anew.
	forgetAfter = 15 * time.Minute
	// mostAddresses bounds those that are remembered. Beyond it the one that tried longest ago is
	// forgotten.
	mostAddresses = 4096
	// recentFor is how long an address goes before others after a login, and mostRecent bounds those that
	// do. All of them have somebody who may log in.
	recentFor  = 12 * time.Hour
	mostRecent = 256
)

// addressOf is what counts as one address.
func addressOf(a net.Addr) netip.Prefix {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	return callers.Of(ap.Addr())
}

// guard bounds the passwords that an address may try. It slows down nobody else.
type guard struct {
	now func() time.Time

	mu    sync.Mutex
	tries map[netip.Prefix]*tries
	// recent has when somebody logged in last from an address.
	recent map[netip.Prefix]time.Time
}

type tries struct {
	failed      int
	last, until time.Time
}

func newGuard(now func() time.Time) *guard {
	return &guard{now: now, tries: map[netip.Prefix]*tries{}, recent: map[netip.Prefix]time.Time{}}
}

// try reports whether a password may be looked at. It counts as wrong until succeeded is called:
// otherwise many at a time would all be looked at.
func (g *guard) try(from netip.Prefix) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	t := g.tries[from]
	if t == nil || now.Sub(t.last) > forgetAfter {
		if t == nil && len(g.tries) >= mostAddresses {
			delete(g.tries, oldest(g.tries, func(t *tries) time.Time { return t.last }))
		}
		t = &tries{}
		g.tries[from] = t
	}
	if now.Before(t.until) {
		return false
	}
	t.failed++
	t.last = now
	if over := t.failed - freeTries; over >= 0 {
		t.until = now.Add(min(maxDelay, firstDelay<<min(over, 10)))
	}
	return true
}

// succeeded forgets an address's wrong passwords.
func (g *guard) succeeded(from netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.tries, from)
}

// loggedIn notes that somebody logged in from an address, with a password or a key.
func (g *guard) loggedIn(from netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recent[from] = g.now()
	if len(g.recent) > mostRecent {
		delete(g.recent, oldest(g.recent, func(at time.Time) time.Time { return at }))
	}
}

// standing is what an address has to show for itself: whether somebody logged in from it not long ago, and
// how many of its passwords count as wrong.
func (g *guard) standing(from netip.Prefix) (recent bool, wrong int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at, ok := g.recent[from]; ok {
		recent = g.now().Sub(at) <= recentFor
	}
	if t := g.tries[from]; t != nil {
		wrong = t.failed
	}
	return recent, wrong
}

// oldest is the address whose time is first.
func oldest[T any](all map[netip.Prefix]T, of func(T) time.Time) (address netip.Prefix) {
	var first time.Time
	for a, is := range all {
		if at := of(is); first.IsZero() || at.Before(first) {
			address, first = a, at
		}
	}
	return address
}

// places bounds connections, in total and of each address.
type places struct {
	most, each int

	mu    sync.Mutex
	taken int
	of    map[netip.Prefix]int
}

func newPlaces(most, each int) *places {
	return &places{most: most, each: each, of: map[netip.Prefix]int{}}
}

// take takes a place, or says why there is none.
func (p *places) take(from netip.Prefix) (why refusal, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.of[from] >= p.each:
		return refusedAddress, false
	case p.taken >= p.most:
		return refusedConnections, false
	}
	p.taken++
	p.of[from]++
	return "", true
}

func (p *places) leave(from netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[from]--; p.of[from] == 0 {
		delete(p.of, from)
	}
}

// lobby bounds the connections that have no header, or no login, yet, in total and of each address. Who has waited
// longest makes room for who comes: those that never log in keep nobody out. In total, those go last that
// come from where somebody logged in not long ago.
type lobby struct {
	most, each int

	mu sync.Mutex
	// all are those that wait, the oldest first.
	all []*pendingLogin
}

// pendingLogin is a connection without a login.
type pendingLogin struct {
	from   netip.Prefix
	recent bool
	// end ends the connection; ended is set when it made room for another one.
	end   func()
	ended bool
}

// admit lets a connection in. Where another one made room for it, why says for which bound.
func (l *lobby) admit(from netip.Prefix, recent bool, end func()) (g *pendingLogin, why refusal) {
	g = &pendingLogin{from: from, recent: recent, end: end}
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := 0
	for _, other := range l.all {
		if other.from == from {
			mine++
		}
	}
	leaves := -1
	switch {
	case mine >= l.each:
		why = refusedAddress
		leaves = slices.IndexFunc(l.all, func(other *pendingLogin) bool { return other.from == from })
	case len(l.all) >= l.most:
		why = refusedConnections
		leaves = max(0, slices.IndexFunc(l.all, func(other *pendingLogin) bool { return !other.recent }))
	}
	if leaves >= 0 {
		l.all[leaves].ended = true
		l.all[leaves].end()
		l.all = slices.Delete(l.all, leaves, leaves+1)
	}
	l.all = append(l.all, g)
	return g, why
}

// close ends all that wait.
func (l *lobby) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.all {
		g.end()
	}
}

// leave lets a connection go, and reports whether it had made room for another one.
func (l *lobby) leave(g *pendingLogin) (ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(other *pendingLogin) bool { return other == g })
	return g.ended
}
