// Package dataplane serves clients: it opens the ports of the routes that it is given, and
// reports its clients to the operator. The packages below it decide about each client, and each
// has a map of a client's life:
//
//	tcp, udp   accept → admit → hold → deliver → relay → end
//	service    what both have of one ElasticService
//	../hold    the queue: wake, and release to a backend by the client's ticket
//	../guard   who may ask, and for how much
//	../relay   moves the bytes of TCP
//	../conn    sockets
//
// The queue calls no TCP client: each waits for its ticket. It calls a UDP session, which has no
// goroutine that could wait.
//
// The data plane asks the cluster nothing. Routes come from outside, and the only call that a
// client causes is the queue's wake call.
package dataplane

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/dataplane/udp"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/bedrock"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
	"dormouse.dev/dormouse/resolver/internal/proto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto/quake3"
	"dormouse.dev/dormouse/resolver/internal/proto/source"
	prototcp "dormouse.dev/dormouse/resolver/internal/proto/tcp"
	"dormouse.dev/dormouse/resolver/internal/proto/tls"
	protoudp "dormouse.dev/dormouse/resolver/internal/proto/udp"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// reapLeast is how many listeners may have ended before end looks for them.
const reapLeast = 16

// Options are what a Server works with.
type Options = service.Options

// Server is the data plane. It is a route.Sink.
type Server struct {
	*service.Shared
	started time.Time
	// closing are UDP sockets that take no new sessions.
	closing udp.ClosingSockets

	mu       sync.Mutex
	services map[types.UID]*served
	fronts   map[route.FrontKey]*front
	// named counts the services of a name. Two ElasticServices may name one Service, and its
	// series end with the last.
	named    map[types.NamespacedName]int
	departed departed
	// ended are the listeners of routes that are gone, kept for Close. Those that have ended
	// are forgotten once there are reapAt.
	ended  []*listener.Listener
	reapAt int
}

var _ route.Sink = (*Server)(nil)

// New makes a Server without routes. Without Options.Protocols it has Dormouse's own.
func New(opts Options) *Server {
	if opts.Protocols == nil {
		opts.Protocols = map[v1alpha1.Protocol]proto.Protocol{
			v1alpha1.ProtocolTCP:       prototcp.Protocol{},
			v1alpha1.ProtocolUDP:       protoudp.Protocol{},
			v1alpha1.ProtocolHTTP:      http1.Protocol{},
			v1alpha1.ProtocolTLS:       tls.Protocol{},
			v1alpha1.ProtocolMinecraft: minecraft.Protocol{},
			v1alpha1.ProtocolBedrock:   bedrock.Protocol{},
			v1alpha1.ProtocolSource:    source.New(),
			v1alpha1.ProtocolQuake3:    quake3.Protocol{},
		}
	}
	return &Server{
		Shared: service.NewShared(opts), started: time.Now(),
		services: map[types.UID]*served{}, fronts: map[route.FrontKey]*front{}, named: map[types.NamespacedName]int{},
	}
}

// Update implements route.Sink. It returns after the first try to open each new port.
func (s *Server) Update(r *route.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv := s.services[r.UID]
	var before *route.Front
	if sv == nil {
		sv = s.serve(r)
		s.services[r.UID] = sv
		s.Metrics.Routes(len(s.services))
		s.named[service.NameOf(r)]++
	} else {
		was := sv.update(r)
		before = was.Front
		if was.Service != r.Service {
			s.named[service.NameOf(r)]++
			s.unname(service.NameOf(was))
		}
	}
	if closed := s.setPorts(sv, r); len(closed) > 0 {
		s.end(closed)
	}
	if before != nil || r.Front != nil {
		s.setFront(sv, before, r.Front)
	}
}

// Players implements route.Sink.
func (s *Server) Players(of, pod types.UID, players *route.Players) {
	s.mu.Lock()
	sv := s.services[of]
	s.mu.Unlock()
	if sv != nil {
		sv.Queue.Players(pod, players)
	}
}

// unname forgets the series of a Service that no route names any more.
func (s *Server) unname(name types.NamespacedName) {
	if s.named[name]--; s.named[name] > 0 {
		return
	}
	delete(s.named, name)
	s.Metrics.Forget(name.Namespace, name.Name)
}

// Remove implements route.Sink. Held clients are refused; relayed ones go on.
func (s *Server) Remove(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv := s.services[uid]
	if sv == nil {
		return
	}
	delete(s.services, uid)
	s.setFront(sv, sv.Route().Front, nil)
	s.end(sv.close())
	s.departed.keep(sv.Name(), sv.Active)
	s.Metrics.Routes(len(s.services))
	s.unname(sv.Name())
}

// end keeps closed listeners until they have ended. It looks at all of them only
// once they have become twice as many.
func (s *Server) end(closed []*listener.Listener) {
	s.ended = append(s.ended, closed...)
	if len(s.ended) > s.reapAt {
		s.ended = slices.DeleteFunc(s.ended, (*listener.Listener).Ended)
		s.reapAt = 2*len(s.ended) + reapLeast
	}
}

// Clients is how many clients are relayed or held.
func (s *Server) Clients() int {
	n := int(s.Shared.Sessions.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sv := range s.services {
		n += sv.Queue.Len()
	}
	return n
}

// Close cuts all clients and waits until everything has ended.
func (s *Server) Close() {
	s.mu.Lock()
	queues := make([]*hold.Queue, 0, len(s.services))
	for uid, sv := range s.services {
		s.setFront(sv, sv.Route().Front, nil)
		s.ended = append(s.ended, sv.close()...)
		queues = append(queues, sv.Queue)
		delete(s.services, uid)
	}
	ended := s.ended
	s.mu.Unlock()
	s.Shared.Close()
	for _, l := range ended {
		l.Cut()
		l.Wait()
	}
	for _, q := range queues {
		q.Wait()
	}
	// Nothing new begins once the loops have ended what was under way.
	loop.Settle()
	s.Running.Wait()
}

// Routes describes the routes that are served: all, or those with the uids.
func (s *Server) Routes(uids ...string) informerapi.RoutesResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := informerapi.RoutesResponse{Routes: []informerapi.Route{}}
	for _, sv := range s.some(uids) {
		out.Routes = append(out.Routes, s.describe(sv))
	}
	slices.SortFunc(out.Routes, func(a, b informerapi.Route) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Sessions describes the clients: of all services, or of those with the uids.
func (s *Server) Sessions(uids ...string) informerapi.SessionsResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	out := informerapi.SessionsResponse{Started: s.started, Now: now, Services: []informerapi.Sessions{}}
	for _, sv := range s.some(uids) {
		if sessions, ever := sv.Summary(now); ever {
			out.Services = append(out.Services, sessions)
		}
	}
	slices.SortFunc(out.Services, func(a, b informerapi.Sessions) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// some is all services, or those with the uids.
func (s *Server) some(uids []string) map[types.UID]*served {
	if len(uids) == 0 {
		return s.services
	}
	some := make(map[types.UID]*served, len(uids))
	for _, uid := range uids {
		if sv := s.services[types.UID(uid)]; sv != nil {
			some[types.UID(uid)] = sv
		}
	}
	return some
}
