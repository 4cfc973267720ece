package tcp

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/tcp"
	"dormouse.dev/dormouse/resolver/internal/route"
)

const (
	// NoSuchServer is the message of the day for names that lead nowhere.
	NoSuchServer = "There is no server by this name here."
	// FrontHandshakes is how many clients of a front may say at once which host they want.
	FrontHandshakes = 1000
)

// Front is a port that several services share. Each client first says which host name it wants.
// From then on it is a client of that host's service, as if it had come to the service's own
// port.
type Front struct {
	shared *service.Shared
	key    route.FrontKey
	// guard tracks the clients that haven't named a host. Files and held are what they take of
	// the shared capacity.
	guard guard.Guard
	files service.Files
	held  *conn.Budget
	// owner has the owner's settings for all of the front's clients.
	owner atomic.Pointer[ownerTerms]
	// namers refuse clients that ask for a name that leads nowhere, in each protocol that has
	// names.
	namers []*namer
	// nobody refuses clients that speak none of those protocols.
	nobody *classifier

	mu sync.RWMutex
	// hosts are the services' ports by the names that lead to them.
	hosts map[string]*Port
}

// namer is one of a front's protocols.
type namer struct {
	*classifier
	name v1alpha1.Protocol
	proto.Namer
}

// ownerTerms are the owner's settings for all of a front's clients.
type ownerTerms struct {
	proxy route.Proxy
	rules guard.Rules
}

// frontTerms are the settings of a front's classifiers.
type frontTerms struct{ policy service.Policy }

// Policy implements terms.
func (t *frontTerms) Policy() *service.Policy { return &t.policy }

// HeadTime implements terms.
func (*frontTerms) HeadTime() time.Duration { return route.DefaultHandshake }

// MaxHandshakes implements terms.
func (*frontTerms) MaxHandshakes() int { return FrontHandshakes }

// NewFront makes the front of a service's part.
func NewFront(s *service.Shared, part *route.Front) *Front {
	key := part.FrontKey
	f := &Front{shared: s, key: key, held: s.Held.Share(), hosts: map[string]*Port{}}
	f.Owner(part)
	terms := &frontTerms{service.Policy{Service: proto.Service{Answers: proto.Answers{Asleep: NoSuchServer}}, Classifies: true}}
	of := func(name v1alpha1.Protocol, protocol proto.Protocol) *classifier {
		return &classifier{protocol: protocol, counts: s.Metrics.Port(key.Namespace, key.Service, string(name)), guard: &f.guard, terms: terms}
	}
	f.nobody = of(v1alpha1.ProtocolTCP, tcp.Protocol{})
	for name, protocol := range s.Protocols {
		if can := proto.AbilitiesOf(protocol); can.Namer != nil {
			f.namers = append(f.namers, &namer{of(name, protocol), name, can.Namer})
		}
	}
	slices.SortFunc(f.namers, func(a, b *namer) int { return cmp.Compare(a.name, b.name) })
	return f
}

// Open opens the front's port.
func (f *Front) Open() (listener.Socket, error) {
	return listener.OpenTCP(f.shared.Host, int(f.key.ResolverPort), func(on *loop.Loop, fd int, from netip.AddrPort) {
		c, err := conn.NewStream(on.Near(), fd)
		if err != nil {
			return
		}
		f.shared.Running.Go(func() {
			defer utilruntime.HandleCrash()
			f.serve(newClient(f.shared, f.held, c, from))
		})
	})
}

// Owner takes in the owner's settings.
func (f *Front) Owner(said *route.Front) {
	f.owner.Store(&ownerTerms{
		proxy: route.Proxy{Trusted: said.Trusted},
		rules: guard.Rules{PerSource: guard.Limits{Sessions: said.MaxSessionsPerSource}},
	})
}

// FilesTaken is how many files the clients have that haven't named a host.
func (f *Front) FilesTaken() int { return f.files.Taken() }

// MaxSessionsPerSource is how many clients one source may have, by the owner's settings.
func (f *Front) MaxSessionsPerSource() int32 { return f.owner.Load().rules.PerSource.Sessions }

// Lead makes hosts lead to a port.
func (f *Front) Lead(hosts []string, p *Port) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, host := range hosts {
		f.hosts[host] = p
	}
}

// Drop makes those hosts lead nowhere that lead to the service.
func (f *Front) Drop(hosts []string, sv *service.Service) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, host := range hosts {
		if p := f.hosts[host]; p != nil && p.Service == sv {
			delete(f.hosts, host)
		}
	}
}

// LeadsNowhere reports whether no host leads anywhere.
func (f *Front) LeadsNowhere() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.hosts) == 0
}

// find is the port that a name leads to, if that port speaks the protocol; nil: none.
func (f *Front) find(name string, protocol v1alpha1.Protocol) *Port {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p, ok := route.FindHost(f.hosts, name)
	if !ok || p.Key.Protocol != protocol {
		return nil
	}
	return p
}

// serve serves a client that hasn't named a host yet.
func (f *Front) serve(c *Client) {
	c.line.At(f.key.Namespace, f.key.Service, string(v1alpha1.ProtocolTCP))
	p := f.admit(c)
	if p == nil {
		c.end()
		return
	}
	c.announced = p.Route().Proxy.Send
	p.counts.ClientTaken()
	k := p.Policy()
	var rules guard.Rules
	if part := p.Route().Front; part != nil {
		rules = part.Guard
	} else { // it has just left the front
		rules = k.Rules.Hidden()
	}
	if !p.admit(c, k, &rules) {
		c.end()
	}
}

// admit finds out which port a client wants; nil: none that it may have, and it was told so.
func (f *Front) admit(c *Client) *Port {
	p := f.meet(c)
	if p == nil {
		return nil
	}
	c.headHeard()
	if p.Can.Requests {
		c.front.only = func(host string) bool { return f.find(host, p.Key.Protocol) == p }
		c.front.turn = f.turn
	}
	p.Wanted(c.line)
	if passes, _ := c.pass(); passes == 0 && len(c.sent) > 0 {
		f.nobody.counts.ClientTaken()
		p.refuse(c.line, proto.Unwanted)
		p.refuseWith(c, proto.Unwanted)
		return nil
	}
	return p
}

// meet finds the port that a client wants; nil: it may not have any. Then it is answered,
// within the place and the time of its first handshake.
func (f *Front) meet(c *Client) *Port {
	if !f.shared.TakeFiles(&f.files) {
		f.nobody.refuse(c.line, proto.TooManyConnections)
		return nil
	}
	defer f.shared.GiveFiles(&f.files)
	defer f.nobody.occupy(c).End()
	c.awaitHead(f.nobody.terms.HeadTime())
	if c.front == nil && !f.admitted(c) {
		return nil
	}
	said, name := f.hearName(c)
	if said == nil {
		return nil
	}
	c.line.At(f.key.Namespace, f.key.Service, string(said.name))
	if p := f.find(name, said.name); p != nil {
		return p
	}
	said.counts.ClientTaken()
	said.refuse(c.line, proto.UnknownName)
	if said.classify(c) {
		said.refuseInPlace(c, proto.UnknownName)
	}
	return nil
}

// admitted begins a new client's stay at the front; false: its source has too many, or the
// client is gone.
func (f *Front) admitted(c *Client) bool {
	owner := f.owner.Load()
	if owner.proxy.Trusts(c.source.Addr()) && !f.nobody.introduce(c) || c.local {
		return false
	}
	stay, reason := f.guard.Admit(&owner.rules, c.source.Addr(), f.held)
	if reason != "" {
		f.nobody.refuse(c.line, reason)
		return false
	}
	c.front = &atFront{stay: stay}
	return true
}

// turn serves on an HTTP client whose next request is for another host. It keeps its state at
// the front.
func (f *Front) turn(was *Client, client *conn.Stream, rest []byte) {
	c := newClient(f.shared, f.held, client, was.source)
	c.endpoints, c.front = was.endpoints, &atFront{stay: was.front.stay, returned: true}
	c.budget.Force(len(rest))
	c.sent = rest
	f.serve(c)
}

// hearName waits until the client has named a host, and finds out in which protocol; nil: it is
// gone or refused. The bytes are left unconsumed.
func (f *Front) hearName(c *Client) (said *namer, name string) {
	for {
		more := false
		for _, n := range f.namers {
			name, action := n.ServerName(c.sent)
			if _, after := n.terms.Policy().IfDown(n.protocol, c.sent, netip.AddrPort{}); action == proto.Hold && after > 0 && c.goesOn(after, c.headDue) {
				name, action = n.ServerName(c.sent)
			}
			if action == proto.Hold {
				return n, name
			}
			more = more || action == proto.NeedMore
		}
		if !more {
			f.nobody.counts.ClientTaken()
			f.nobody.refuse(c.line, proto.Unwanted)
			for _, n := range f.namers {
				n.refuseInPlace(c, proto.Unwanted)
			}
			return nil, ""
		}
		if !f.nobody.hear(c, c.front.returned) {
			f.nobody.counts.ClientTaken()
			return nil, ""
		}
	}
}
