package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// service is one ElasticService at work.
type service struct {
	server *Server
	route  atomic.Pointer[route.Route]
	queue  *hold.Queue
	active activity
	// handover is for its UDP sessions.
	handover handover
	// strangers are those of its UDP sessions that make room first.
	strangers strangers
	follows   follows
	guard     guard.Guard
	// files and udpSessions are the service's part of what all share.
	files, udpSessions atomic.Int32
	// dials bounds how many held clients connect at once.
	dials chan struct{}
	// ports and closed are guarded by the server's lock. They are few, and a map of
	// them would take more than they do. Closed are ports that may have UDP sessions
	// still.
	ports, closed []*servedPort
}

// portKey is what a listener can't be kept for when it changes.
type portKey struct {
	name     string
	protocol v1alpha1.Protocol
	network  route.Network
	number   int32
}

func keyOf(p *route.Port) portKey {
	return portKey{name: p.Name, protocol: p.Protocol, network: p.Network, number: p.ResolverPort}
}

// servedPort is one service port at work.
type servedPort struct {
	service  *service
	key      portKey
	protocol proto.Protocol
	// known is what the protocol may know; it is new with each version of the route.
	known atomic.Pointer[known]
	// told is what a server told of itself, and asked which was asked last. The
	// server's lock guards both.
	told  proto.Answers
	asked asked
	// learning says that one is being asked, and gone is closed with the port.
	learning bool
	gone     chan struct{}
	// retold is what servers said to who only asked.
	retold   retold
	counts   *metrics.Port
	guard    *guard.Guard
	listener *listener.Listener
	// socket is what a UDP port is open as.
	socket atomic.Pointer[udpSocket]
	// pace is for the held datagrams of a UDP port.
	pace *pace
	// filed says that the port's file is counted.
	filed atomic.Bool
}

func newService(s *Server, r *route.Route) *service {
	sv := &service{server: s, dials: make(chan struct{}, parallelDials)}
	sv.route.Store(r)
	sv.handover.follow(r.Direct)
	sv.queue = hold.New(r, hold.Options{Waker: s.opts.Waker, Dial: sv.dialUp, Metrics: s.opts.Metrics, Log: s.opts.Log})
	return sv
}

// setPorts closes the listeners that the route has no more, opens those that it
// has now, and gives the closed ones.
func (sv *service) setPorts(r *route.Route) (closed []*listener.Listener) {
	sv.ports = slices.DeleteFunc(sv.ports, func(p *servedPort) bool {
		i := slices.IndexFunc(r.Ports, func(w route.Port) bool { return w.Taken == "" && keyOf(&w) == p.key })
		if i >= 0 {
			p.known.Store(p.knownOf(r, &r.Ports[i]))
			p.learn(&r.Ports[i])
			return false
		}
		p.close()
		closed = append(closed, p.listener)
		sv.closed = append(sv.closed, p)
		return true
	})
	sv.closed = slices.DeleteFunc(sv.closed, (*servedPort).ended)
	for i := range r.Ports {
		key := keyOf(&r.Ports[i])
		protocol, known := sv.server.opts.Protocols[key.protocol]
		if !known || r.Ports[i].Taken != "" || sv.port(key) != nil {
			continue
		}
		p := &servedPort{
			service: sv, key: key, protocol: protocol, guard: &sv.guard, gone: make(chan struct{}),
			counts: sv.server.opts.Metrics.Port(r.Namespace, r.Service, string(key.protocol)),
		}
		p.known.Store(p.knownOf(r, &r.Ports[i]))
		p.learn(&r.Ports[i])
		if key.network == route.UDP {
			p.pace = newPace()
		}
		p.takeFile()
		p.listener = listener.Start(p.log, p.open())
		sv.ports = append(sv.ports, p)
	}
	return closed
}

// port finds a port at work; nil: there is none.
func (sv *service) port(key portKey) *servedPort {
	for _, p := range sv.ports {
		if p.key == key {
			return p
		}
	}
	return nil
}

// portNamed finds a port at work by its name; nil: there is none.
func (sv *service) portNamed(name string) *servedPort {
	for _, p := range sv.ports {
		if p.key.name == name {
			return p
		}
	}
	return nil
}

// endLost ends the UDP sessions whose server's address is no pod's any more, or
// another's. Their clients might go on sending for ever, to nobody or to
// strangers, without that anybody is woken; what they send next begins a new
// session. Pods that end keep theirs as long as their address is known.
func (sv *service) endLost(was, is *route.Route) {
	for i := range is.Ports {
		now := &is.Ports[i]
		before, ok := was.Port(now.Name)
		if !ok || now.Network != route.UDP {
			continue
		}
		lost := now.Lost(before.Backends)
		if len(lost) == 0 {
			continue
		}
		for _, p := range slices.Concat(sv.ports, sv.closed) {
			if socket := p.socket.Load(); socket != nil && p.key.name == now.Name {
				socket.endLost(p, lost)
			}
		}
	}
}

// log says of which port what is logged is.
func (p *servedPort) log() logr.Logger {
	r := p.service.route.Load()
	return p.service.server.opts.Log.WithValues(
		"namespace", r.Namespace, "service", r.Service, "port", p.key.name, "resolverPort", p.key.number)
}

// open tells the listener how its port is opened.
func (p *servedPort) open() listener.Open {
	host, number := p.service.server.opts.Host, int(p.key.number)
	if p.key.network == route.UDP {
		return func() (listener.Socket, error) { return openUDP(p, host, number) }
	}
	slowly := listener.Conns(func(c *net.TCPConn, from netip.AddrPort) {
		p.service.server.wg.Go(func() { p.serveTCP(c, from) })
	})
	return listener.TCP(host, number, func(on *loop.Loop, fd int, from netip.AddrPort) {
		if !p.goesStraight(on, fd, from, slowly) {
			slowly(on, fd, from)
		}
	})
}

// close takes no new clients. A UDP port that has sessions keeps its socket for them.
func (p *servedPort) close() {
	close(p.gone)
	p.retold.close(p)
	p.listener.Close()
	if p.key.network == route.TCP || p.socket.Load() == nil {
		p.giveBackFile()
	}
}

// ended says that a closed port has no sessions any more.
func (p *servedPort) ended() bool {
	if !p.listener.Ended() {
		return false
	}
	u := p.socket.Load()
	return u == nil || !u.has(p)
}

// takeFile and giveBackFile count the port's file, once each.
func (p *servedPort) takeFile() {
	if server := p.service.server; p.filed.CompareAndSwap(false, true) {
		server.files.Force(&server.portFiles, 1)
	}
}

func (p *servedPort) giveBackFile() {
	if server := p.service.server; p.filed.CompareAndSwap(true, false) {
		server.files.Force(&server.portFiles, -1)
	}
}

func (sv *service) close() (closed []*listener.Listener) {
	for _, p := range sv.ports {
		p.close()
		closed = append(closed, p.listener)
	}
	sv.ports = nil
	sv.queue.Close()
	return closed
}

func (sv *service) describe() informerapi.Route {
	r := sv.route.Load()
	out := informerapi.Route{
		UID: string(r.UID), Namespace: r.Namespace, Name: r.Name, Service: r.Service,
		Phase: string(r.Phase), Ports: []informerapi.RoutePort{},
	}
	if !r.PhaseSince.IsZero() {
		out.PhaseSince = &r.PhaseSince
	}
	for i := range r.Ports {
		p := &r.Ports[i]
		described := informerapi.RoutePort{Name: p.Name, Protocol: string(p.Protocol), Port: p.ResolverPort}
		switch served := sv.port(keyOf(p)); {
		case p.Taken != "":
			described.Error = p.Taken
		case served == nil:
			described.Error = fmt.Sprintf("this resolver does not know the protocol %q", p.Protocol)
		default:
			listening, err := served.listener.State()
			described.Listening = listening
			if err != nil {
				described.Error = err.Error()
			}
		}
		out.Ports = append(out.Ports, described)
	}
	if r.Front != nil {
		out.Ports = append(out.Ports, sv.server.describeFront(r.Front))
	}
	return out
}

// activity is who a service carries.
type activity struct {
	// relayed counts clients with a server; open, of those and of those that
	// are on their way to one, the TCP connections.
	relayed, open atomic.Int32
	// heard is when a client was last heard of.
	heard moment
}

func (a *activity) touch(now time.Time) { a.heard.note(now) }

// carried tells the operator; ever is false when there never was a client that counts.
func (sv *service) carried(now time.Time) (out informerapi.Sessions, ever bool) {
	a := &sv.active
	out = informerapi.Sessions{
		UID:      string(sv.route.Load().UID),
		Sessions: a.relayed.Load(),
		Queued:   int32(sv.queue.Len()), //nolint:gosec // bounded by the API
	}
	if a.open.Load() > 0 || out.Queued > 0 {
		out.LastActive = now
		return out, true
	}
	out.LastActive, ever = a.heard.last()
	if !ever {
		out.LastActive = time.Time{}
	}
	return out, ever || out.Sessions > 0
}

// begin and end follow a client that has a server. A query doesn't keep it awake.
func (p *servedPort) begin(query bool) {
	if !query {
		p.service.active.relayed.Add(1)
	}
	p.service.server.sessions.Add(1)
	p.counts.SessionBegun()
}

func (p *servedPort) end(query bool) {
	if !query {
		p.service.active.relayed.Add(-1)
	}
	p.service.server.sessions.Add(-1)
	p.counts.SessionEnded()
}
