package dataplane

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/listener"
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
	// dials bounds how many held clients connect at once.
	dials chan struct{}
	// ports and closed are guarded by the server's lock. Closed are ports that
	// may have UDP sessions still.
	ports  map[portKey]*servedPort
	closed []*servedPort
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
	counts   *metrics.Port
	listener *listener.Listener
	// socket is what a UDP port is open as.
	socket atomic.Pointer[udpSocket]
	// pace is for the held datagrams of a UDP port.
	pace *pace
}

func newService(s *Server, r *route.Route) *service {
	return &service{
		server: s,
		dials:  make(chan struct{}, parallelDials),
		ports:  map[portKey]*servedPort{},
		queue:  hold.New(r, hold.Options{Waker: s.opts.Waker, Dial: dial, Metrics: s.opts.Metrics, Log: s.opts.Log}),
	}
}

// setPorts closes the listeners that the route has no more, opens those that it
// has now, and gives the closed ones.
func (sv *service) setPorts(r *route.Route) (closed []*listener.Listener) {
	wanted := map[portKey]bool{}
	for i := range r.Ports {
		if r.Ports[i].Taken == "" {
			wanted[keyOf(&r.Ports[i])] = true
		}
	}
	for key, p := range sv.ports {
		if !wanted[key] {
			p.listener.Close()
			closed = append(closed, p.listener)
			delete(sv.ports, key)
			sv.closed = append(sv.closed, p)
		}
	}
	sv.closed = slices.DeleteFunc(sv.closed, func(p *servedPort) bool { return p.listener.Ended() })
	for key := range wanted {
		protocol, known := sv.server.opts.Protocols[key.protocol]
		if !known || sv.ports[key] != nil {
			continue
		}
		p := &servedPort{
			pace:    newPace(),
			service: sv, key: key, protocol: protocol,
			counts: sv.server.opts.Metrics.Port(r.Namespace, r.Service, string(key.protocol)),
		}
		p.listener = listener.Start(
			sv.server.opts.Log.WithValues("namespace", r.Namespace, "service", r.Service, "port", key.name, "resolverPort", key.number),
			p.open())
		sv.ports[key] = p
	}
	return closed
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
		for _, p := range append(slices.Collect(maps.Values(sv.ports)), sv.closed...) {
			if socket := p.socket.Load(); socket != nil && p.key.name == now.Name {
				socket.endLost(lost)
			}
		}
	}
}

// open tells the listener how its port is opened.
func (p *servedPort) open() listener.Open {
	host, number := p.service.server.opts.Host, int(p.key.number)
	if p.key.network == route.UDP {
		return func(ctx context.Context) (listener.Socket, error) { return openUDP(ctx, p, host, number) }
	}
	return listener.TCP(host, number, func(c *net.TCPConn) {
		p.service.server.wg.Go(func() { p.serveTCP(c) })
	})
}

func (sv *service) close() (closed []*listener.Listener) {
	for key, p := range sv.ports {
		p.listener.Close()
		closed = append(closed, p.listener)
		delete(sv.ports, key)
	}
	sv.queue.Close()
	return closed
}

func (sv *service) describe() informerapi.Route {
	r := sv.route.Load()
	out := informerapi.Route{
		UID: string(r.UID), Namespace: r.Namespace, Name: r.Name, Service: r.Service,
		Phase: string(r.Phase), Ports: []informerapi.RoutePort{},
	}
	for i := range r.Ports {
		p := &r.Ports[i]
		described := informerapi.RoutePort{Name: p.Name, Protocol: string(p.Protocol), Port: p.ResolverPort}
		switch served := sv.ports[keyOf(p)]; {
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
	return out
}

// activity is who a service carries. It is written for each packet.
type activity struct {
	// relayed counts clients with a server; open, of those and of those that
	// are on their way to one, the TCP connections.
	relayed, open atomic.Int32
	// last is when a client was last heard of, in nanoseconds; 0: never.
	last atomic.Int64
}

func (a *activity) touch(now time.Time) { a.last.Store(now.UnixNano()) }

// carried tells the operator; ever is false when there never was a client.
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
	last := a.last.Load()
	if last == 0 {
		return out, false
	}
	out.LastActive = time.Unix(0, last)
	return out, true
}

// begin and end follow a client that has a server.
func (p *servedPort) begin() {
	p.service.active.relayed.Add(1)
	p.service.server.sessions.Add(1)
	p.counts.SessionBegun()
}

func (p *servedPort) end() {
	p.service.active.relayed.Add(-1)
	p.service.server.sessions.Add(-1)
	p.counts.SessionEnded()
}
