package dataplane

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
	"dormouse.dev/dormouse/resolver/internal/proto/tcp"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// noSuchServer is the message of the day for names that nobody has.
const noSuchServer = "There is no server by this name here."

// front is a port that several services share. Each client says first by which host
// name it wants which; from there on it is that service's, as if it had come to the
// service's own port.
type front struct {
	server   *Server
	key      route.FrontKey
	listener *listener.Listener
	// guard knows those who haven't said a name, and files are what they take of what
	// all share.
	guard guard.Guard
	files atomic.Int32
	// parts are those of the services, and terms are what its owner says of all its
	// clients, as the part of newest has it. The first two have the server's lock.
	parts  map[*service]*route.Front
	newest *service
	terms  atomic.Pointer[frontTerms]
	// strangers turn away who asks for a name that nobody has, in each protocol that
	// says names.
	strangers []*servedPort
	// nobody is for who speaks none of them.
	nobody *servedPort

	mu sync.RWMutex
	// hosts are the services' ports by the names that lead there.
	hosts map[string]*servedPort
}

// frontTerms are what a front's owner says of all its clients.
type frontTerms struct {
	proxy route.Proxy
	rules guard.Rules
}

func termsOf(f *route.Front) *frontTerms {
	return &frontTerms{
		proxy: route.Proxy{Trusted: f.Trusted},
		rules: guard.Rules{PerSource: guard.Limits{Sessions: f.MaxSessionsPerSource}},
	}
}

// newFront opens a front. It is called with the server's lock.
func (s *Server) newFront(part *route.Front) *front {
	key := part.FrontKey
	f := &front{server: s, key: key, hosts: map[string]*servedPort{}, parts: map[*service]*route.Front{}}
	f.terms.Store(termsOf(part))
	port := func(name v1alpha1.Protocol, protocol proto.Protocol) *servedPort {
		p := &servedPort{
			key: portKey{protocol: name, network: route.TCP}, protocol: protocol, guard: &f.guard,
			counts: s.opts.Metrics.Port(key.Namespace, key.Service, string(name)),
		}
		p.known.Store(&known{service: proto.Service{Answers: proto.Answers{Asleep: noSuchServer}}, judges: true})
		return p
	}
	f.nobody = port(v1alpha1.ProtocolTCP, tcp.Protocol{})
	for name, protocol := range s.opts.Protocols {
		if _, names := protocol.(proto.Namer); names {
			f.strangers = append(f.strangers, port(name, protocol))
		}
	}
	slices.SortFunc(f.strangers, func(a, b *servedPort) int { return cmp.Compare(a.key.protocol, b.key.protocol) })
	s.named[f.name()]++
	f.listener = listener.Start(
		func() logr.Logger {
			return s.opts.Log.WithValues("namespace", key.Namespace, "front", key.Service, "resolverPort", key.ResolverPort)
		},
		listener.TCP(s.opts.Host, int(key.ResolverPort), listener.Conns(func(c *net.TCPConn, from netip.AddrPort) {
			s.wg.Go(func() { f.serve(c, from) })
		})))
	return f
}

func (f *front) name() types.NamespacedName {
	return types.NamespacedName{Namespace: f.key.Namespace, Name: f.key.Service}
}

// setFront leads the hosts that a route has now to its port, and those that it had no
// more. A nil route has none. It is called with the server's lock, after the ports
// have been set.
func (s *Server) setFront(sv *service, was, is *route.Front) {
	var now route.Front
	if is != nil && len(is.Hosts) > 0 {
		if p := sv.portNamed(is.Port); p != nil {
			now = *is
			if s.fronts[now.FrontKey] == nil {
				s.fronts[now.FrontKey] = s.newFront(&now)
			}
			s.fronts[now.FrontKey].take(sv, &now)
			s.fronts[now.FrontKey].enter(now.Hosts, p)
		}
	}
	if was == nil || s.fronts[was.FrontKey] == nil {
		return
	}
	// Those that stay were never out, or a client would be told that nobody has them.
	s.fronts[was.FrontKey].leave(sv, slices.DeleteFunc(slices.Clone(was.Hosts), func(host string) bool {
		return was.FrontKey == now.FrontKey && slices.Contains(now.Hosts, host)
	}))
	if was.FrontKey != now.FrontKey {
		s.fronts[was.FrontKey].drop(sv)
	}
	s.endFront(was.FrontKey)
}

// take takes in a service's part, and goes by it if there is none that is newer. A service
// that hasn't heard yet what the front's owner said last changes nothing for the others.
func (f *front) take(sv *service, part *route.Front) {
	f.parts[sv] = part
	if newest := f.parts[f.newest]; f.newest == sv || newest == nil || part.SettingsVersion > newest.SettingsVersion {
		f.choose(sv)
	}
}

// drop forgets a service's part.
func (f *front) drop(sv *service) {
	delete(f.parts, sv)
	if f.newest == sv {
		f.choose(nil)
	}
}

// choose goes by the newest part, by this one's among equals.
func (f *front) choose(sv *service) {
	for other, part := range f.parts {
		if best := f.parts[sv]; best == nil || part.SettingsVersion > best.SettingsVersion {
			sv = other
		}
	}
	if f.newest = sv; sv != nil {
		f.terms.Store(termsOf(f.parts[sv]))
	}
}

// endFront closes a front to which no name belongs any more.
func (s *Server) endFront(key route.FrontKey) {
	f := s.fronts[key]
	if f == nil || len(f.hosts) > 0 {
		return
	}
	delete(s.fronts, key)
	f.listener.Close()
	s.end([]*listener.Listener{f.listener})
	s.unname(f.name())
}

func (f *front) enter(hosts []string, p *servedPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, host := range hosts {
		f.hosts[host] = p
	}
}

// leave takes out the names that lead to a service.
func (f *front) leave(sv *service, hosts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, host := range hosts {
		if p := f.hosts[host]; p != nil && p.service == sv {
			delete(f.hosts, host)
		}
	}
}

// find is the port that a name leads to, where that speaks the protocol; nil: none.
func (f *front) find(name string, protocol v1alpha1.Protocol) *servedPort {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p, ok := route.FindHost(f.hosts, name)
	if !ok || p.key.protocol != protocol {
		return nil
	}
	return p
}

// serve carries one client from its connection to its end.
func (f *front) serve(c *net.TCPConn, from netip.AddrPort) {
	defer utilruntime.HandleCrash()
	h, err := f.server.hold(c, from)
	if err != nil {
		_ = c.Close()
		return
	}
	f.carryNew(h)
}

// carryNew carries a client that hasn't said yet whom it wants.
func (f *front) carryNew(h *heldTCP) {
	h.line.At(f.key.Namespace, f.key.Service, string(v1alpha1.ProtocolTCP))
	if !f.carry(h) {
		h.end()
	}
}

// carry is the port's carry.
func (f *front) carry(h *heldTCP) (waits bool) {
	p := f.meet(h)
	if p != nil {
		h.headHeard()
		if _, is := p.protocol.(http1.Protocol); is {
			h.only = func(host string) bool { return f.find(host, p.key.protocol) == p }
			h.turns = func(client *net.TCPConn, rest []byte) { f.turn(h, client, rest) }
		}
		p.wanted(h.line)
		if h.split(); h.passes == 0 && len(h.sent) > 0 {
			f.nobody.counts.ClientTaken()
			p.refuse(h.line, proto.Unwanted)
			p.farewell(h, proto.Unwanted)
			return false
		}
		h.announced = p.service.route.Load().Proxy.Send
		p.counts.ClientTaken()
		var rules guard.Rules
		if part := p.service.route.Load().Front; part != nil {
			rules = part.Guard
		} else { // it has just left the front
			rules = p.known.Load().rules.Hidden()
		}
		return p.carry(h, &rules)
	}
	return false
}

// meet finds out whom a client wants; nil: nobody whom it may have. It is answered
// then, in the places and in the time that it has from the first.
func (f *front) meet(h *heldTCP) (wanted *servedPort) {
	if !f.server.files.Take(&f.files, filesOfTCP) {
		f.nobody.refuse(h.line, proto.TooManyConnections)
		return nil
	}
	defer f.server.files.Force(&f.files, -filesOfTCP)
	defer f.nobody.occupy(h).End()
	h.awaitHead(f.nobody.headTime())
	if !h.turned && !f.admit(h) {
		return nil
	}
	stranger, name := f.ask(h)
	if stranger == nil {
		return nil
	}
	h.line.At(f.key.Namespace, f.key.Service, string(stranger.key.protocol))
	if wanted = f.find(name, stranger.key.protocol); wanted != nil {
		return wanted
	}
	stranger.counts.ClientTaken()
	stranger.refuse(h.line, proto.UnknownName)
	if stranger.inspect(h) {
		stranger.farewellInPlace(h, proto.UnknownName)
	}
	return nil
}

// admit lets a new client in; false: it may not have more at the front, or there is none.
func (f *front) admit(h *heldTCP) bool {
	terms := f.terms.Load()
	if !f.nobody.introduce(h, &terms.proxy) || h.local {
		return false
	}
	var reason proto.Reason
	if h.atFront, reason = f.guard.Enter(&terms.rules, h.source.Addr(), f.server.held); reason != "" {
		f.nobody.refuse(h.line, reason)
		return false
	}
	return true
}

// turn carries on a client of HTTP whose next request is for another host. What it has
// at the front it keeps.
func (f *front) turn(was *heldTCP, client *net.TCPConn, rest []byte) {
	h, err := f.server.hold(client, was.source)
	if err != nil {
		_ = client.Close()
		was.atFront.Leave()
		return
	}
	h.turned, h.endpoints, h.atFront = true, was.endpoints, was.atFront
	h.budget.Force(len(rest))
	h.sent = rest
	f.carryNew(h)
}

// ask waits until the client has said by which name it wants whom, and gives the port
// that speaks its protocol; nil: it is gone or refused. Nothing of what it said is
// used up.
func (f *front) ask(h *heldTCP) (speaks *servedPort, name string) {
	for {
		more := false
		for _, p := range f.strangers {
			name, action := p.protocol.(proto.Namer).ServerName(h.sent)
			if _, after := p.verdictOn(h.sent, netip.AddrPort{}); action == proto.Hold && after > 0 && h.goesOn(after, h.headDue) {
				name, action = p.protocol.(proto.Namer).ServerName(h.sent)
			}
			if action == proto.Hold {
				return p, name
			}
			more = more || action == proto.NeedMore
		}
		if !more {
			f.nobody.counts.ClientTaken()
			f.nobody.refuse(h.line, proto.Unwanted)
			for _, p := range f.strangers {
				p.farewellInPlace(h, proto.Unwanted)
			}
			return nil, ""
		}
		if !f.nobody.hear(h, h.turned) {
			f.nobody.counts.ClientTaken()
			return nil, ""
		}
	}
}

// describeFront tells what becomes of a route's part of a front. It is called with
// the server's lock.
func (s *Server) describeFront(part *route.Front) informerapi.RoutePort {
	out := informerapi.RoutePort{
		Name: part.Port, Protocol: string(v1alpha1.ProtocolTCP), Port: part.ResolverPort,
		Front: part.Namespace + "/" + part.Service,
	}
	f := s.fronts[part.FrontKey]
	if f == nil {
		out.Error = fmt.Sprintf("no name of the front %s leads to port %q", out.Front, part.Port)
		return out
	}
	var err error
	if out.Listening, err = f.listener.State(); err != nil {
		out.Error = err.Error()
	}
	return out
}
