package dataplane

import (
	"fmt"
	"net/netip"
	"slices"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/dataplane/tcp"
	"dormouse.dev/dormouse/resolver/internal/dataplane/udp"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// served is one ElasticService with its ports. The Server's lock guards them.
type served struct {
	*service.Service
	// tcp and udp are nil before the service has its first port of them.
	tcp *tcp.Service
	udp *udp.Service
	// ports are the open ones, and closed those that may still have UDP sessions. They are few:
	// a map would take more memory.
	ports, closed []*port
}

// port is one of its ports: of TCP or of UDP.
type port struct {
	*service.Port
	tcp      *tcp.Port
	udp      *udp.Port
	listener *listener.Listener
}

// serve makes the service of a route, without ports.
func (s *Server) serve(r *route.Route) *served {
	return &served{Service: service.New(s.Shared, r, s.departed.take(service.NameOf(r)))}
}

// update takes a new version of the route, except for the ports, and returns the previous one.
func (sv *served) update(r *route.Route) (was *route.Route) {
	was = sv.Update(r)
	if sv.udp != nil {
		sv.udp.Routed(sv.Service)
	}
	sv.endLost(was, r)
	if sv.tcp != nil {
		sv.tcp.EndIdle(sv.Service)
	}
	return was
}

// setPorts closes the ports that the route has no more, opens those that are new, and returns
// the listeners of the closed ones.
func (s *Server) setPorts(sv *served, r *route.Route) (closed []*listener.Listener) {
	sv.ports = slices.DeleteFunc(sv.ports, func(p *port) bool {
		i := slices.IndexFunc(r.Ports, func(w route.Port) bool { return w.Taken == "" && service.KeyOf(&w) == p.Key })
		if i >= 0 {
			p.Update(r, &r.Ports[i])
			return false
		}
		p.close()
		closed = append(closed, p.listener)
		sv.closed = append(sv.closed, p)
		return true
	})
	sv.closed = slices.DeleteFunc(sv.closed, (*port).ended)
	for i := range r.Ports {
		key := service.KeyOf(&r.Ports[i])
		if r.Ports[i].Taken == "" && s.Protocols[key.Protocol] != nil && sv.port(key) == nil {
			sv.ports = append(sv.ports, s.openPort(sv, r, &r.Ports[i]))
		}
	}
	return closed
}

// openPort opens a port of a route.
func (s *Server) openPort(sv *served, r *route.Route, of *route.Port) *port {
	p := &port{Port: sv.NewPort(r, of, s.Protocols[of.Protocol])}
	var open listener.Open
	if of.Network == route.UDP {
		if sv.udp == nil {
			sv.udp = &udp.Service{}
			sv.udp.Routed(sv.Service)
		}
		p.udp = udp.NewPort(p.Port, sv.udp, &s.closing)
		open = p.udp.Open
	} else {
		if sv.tcp == nil {
			sv.tcp = tcp.NewService()
		}
		p.tcp = tcp.NewPort(p.Port, sv.tcp)
		open = p.tcp.Open
	}
	p.TakeFile()
	p.listener = listener.Start(p.Logger, open)
	return p
}

// close takes no new clients. A UDP port that has sessions keeps its socket for them.
func (p *port) close() {
	p.Close()
	p.listener.Close()
	if p.udp == nil || !p.udp.Opened() {
		p.GiveFile()
	}
}

// ended reports whether a closed port has no sessions any more.
func (p *port) ended() bool {
	return p.listener.Ended() && (p.udp == nil || !p.udp.HasSessions())
}

// port finds an open port; nil: there is none.
func (sv *served) port(key service.Key) *port {
	return sv.find(func(p *port) bool { return p.Key == key })
}

// portNamed finds an open port by its name; nil: there is none.
func (sv *served) portNamed(name string) *port {
	return sv.find(func(p *port) bool { return p.Key.Name == name })
}

func (sv *served) find(is func(*port) bool) *port {
	if i := slices.IndexFunc(sv.ports, is); i >= 0 {
		return sv.ports[i]
	}
	return nil
}

// endLost ends the UDP sessions whose backend's address belongs to no pod any more, or to
// another. Their clients could go on sending for ever, to nobody or to another workload, and
// nothing would be woken. What they send next begins a new session. Pods that terminate keep
// their sessions as long as their address is known, and as long as they answer once they don't
// serve any more.
func (sv *served) endLost(was, is *route.Route) {
	if len(is.Ports) == 0 {
		return // nobody knows whose address is whose
	}
	var departed map[netip.Addr]bool
	for _, p := range slices.Concat(sv.ports, sv.closed) {
		if p.udp == nil {
			continue
		}
		now, has := is.Port(p.Key.Name)
		before, had := was.Port(p.Key.Name)
		if has && had && now.Network == route.UDP {
			p.endLost(now.Lost(before.Backends), now.Unserving(before.Backends))
			continue
		}
		// The port has another name now, or none.
		if departed == nil {
			departed = is.Departed(was)
		}
		p.udp.EndLost(func(a netip.AddrPort) bool { return departed[a.Addr()] })
	}
}

// endLost ends a port's sessions with backends that are lost, and looks at those with backends that don't serve any
// more.
func (p *port) endLost(lost, unserving map[netip.AddrPort]bool) {
	if len(lost) > 0 {
		p.udp.EndLost(func(a netip.AddrPort) bool { return lost[a] })
	}
	if len(unserving) > 0 {
		p.udp.Recheck(func(a netip.AddrPort) bool { return unserving[a] })
	}
}

// close takes no new clients, and refuses those that are held.
func (sv *served) close() (closed []*listener.Listener) {
	for _, p := range sv.ports {
		p.close()
		closed = append(closed, p.listener)
	}
	sv.ports = nil
	sv.Queue.Close()
	return closed
}

// describe describes a route as it is served. The caller has the Server's lock.
func (s *Server) describe(sv *served) informerapi.Route {
	r := sv.Route()
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
		switch at := sv.port(service.KeyOf(p)); {
		case p.Taken != "":
			described.Error = p.Taken
		case at == nil:
			described.Error = fmt.Sprintf("this resolver does not know the protocol %q", p.Protocol)
		default:
			listening, err := at.listener.State()
			described.Listening = listening
			if err != nil {
				described.Error = err.Error()
			}
		}
		out.Ports = append(out.Ports, described)
	}
	if r.Front != nil {
		out.Ports = append(out.Ports, s.describeFront(r.Front))
	}
	return out
}
