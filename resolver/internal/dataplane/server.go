// Package dataplane carries the clients: it opens the ports of the routes that
// it is given, decides for each client between a server and the queue, and
// tells the operator what it carries.
//
// It asks the cluster nothing. Routes come from outside, and the only call that
// a client causes is the queue's wake call.
package dataplane

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/bedrock"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
	"dormouse.dev/dormouse/resolver/internal/proto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto/quake3"
	"dormouse.dev/dormouse/resolver/internal/proto/source"
	"dormouse.dev/dormouse/resolver/internal/proto/tcp"
	"dormouse.dev/dormouse/resolver/internal/proto/tls"
	"dormouse.dev/dormouse/resolver/internal/proto/udp"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// Defaults of Options.
const (
	DefaultUDPIdle        = 120 * time.Second
	DefaultMaxUDPSessions = 100_000
	DefaultMaxHeldBytes   = 256 << 20
	DefaultTCPHalfClosed  = 5 * time.Minute
)

// stalledPart is what part of MaxHeldBytes is for what relayed clients and servers have
// no room for.
const stalledPart = 4

// parallelDials is how many of a service's held clients connect to it at once.
const parallelDials = 128

// reapLeast is how many listeners may have ended before it is looked for them.
const reapLeast = 16

// Options are what a Server works with.
type Options struct {
	// Host is the address to listen on; empty: all of them.
	Host    string
	Waker   hold.Waker
	Metrics *metrics.Metrics
	Log     logr.Logger
	// UDPIdle is how long a UDP session may be silent.
	UDPIdle time.Duration
	// TCPHalfClosed is how long a TCP session in which one side has said all may be
	// silent; 0: 5 minutes. TCPIdle is so for any other; 0: for ever.
	TCPHalfClosed, TCPIdle time.Duration
	// MaxFiles bounds the files that ports and clients of all services have open; 0:
	// by what the process may open.
	MaxFiles int
	// MaxUDPSessions bounds the UDP sessions of all services.
	MaxUDPSessions int
	// MaxHeldBytes bounds what is kept for the clients of all services while
	// they have no server, or no room for what it says.
	MaxHeldBytes int64
	// AccessLog gets a line about each client that goes; nil: nobody does.
	AccessLog *accesslog.Log
	// Protocols are the modules by name; nil: those that Dormouse has.
	Protocols map[v1alpha1.Protocol]proto.Protocol
}

// Server is the data plane. It is a route.Sink.
type Server struct {
	opts    Options
	started time.Time
	ctx     context.Context //nolint:containedctx // the sessions' life, ended by Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	// sessions counts what is relayed, for routes that are gone, too.
	sessions atomic.Int32
	// files and udpSessions are shared by the services; ports are files, too.
	files, udpSessions *guard.Share
	portFiles          atomic.Int32
	// held is charged with what is kept. Stalled is its part for what is relayed, so
	// that clients who take nothing in leave the rest to those who wait.
	held, stalled *conn.Budget
	// closing are UDP sockets that take no new sessions.
	closing closingSockets
	// asks bounds how many servers are asked at once to learn what they tell of
	// themselves, and fetches to tell it again. AskTimeout bounds how long each may take.
	asks, fetches chan struct{}
	askTimeout    time.Duration

	mu       sync.Mutex
	services map[types.UID]*service
	fronts   map[route.FrontKey]*front
	// named counts the services of a name: two ElasticServices may name one
	// Service, whose series end with the last.
	named map[types.NamespacedName]int
	// ended are listeners of routes that are gone; kept for Close. Those that
	// have ended are forgotten once there are reapAt.
	ended  []*listener.Listener
	reapAt int
}

var _ route.Sink = (*Server)(nil)

// New makes a server without routes.
func New(opts Options) *Server {
	if opts.UDPIdle == 0 {
		opts.UDPIdle = DefaultUDPIdle
	}
	if opts.TCPHalfClosed == 0 {
		opts.TCPHalfClosed = DefaultTCPHalfClosed
	}
	if opts.MaxFiles == 0 {
		opts.MaxFiles = maxFiles()
	}
	if opts.MaxUDPSessions == 0 {
		opts.MaxUDPSessions = DefaultMaxUDPSessions
	}
	if opts.MaxHeldBytes == 0 {
		opts.MaxHeldBytes = DefaultMaxHeldBytes
	}
	if opts.Protocols == nil {
		opts.Protocols = map[v1alpha1.Protocol]proto.Protocol{
			v1alpha1.ProtocolTCP:       tcp.Protocol{},
			v1alpha1.ProtocolUDP:       udp.Protocol{},
			v1alpha1.ProtocolHTTP:      http1.Protocol{},
			v1alpha1.ProtocolTLS:       tls.Protocol{},
			v1alpha1.ProtocolMinecraft: minecraft.Protocol{},
			v1alpha1.ProtocolBedrock:   bedrock.Protocol{},
			v1alpha1.ProtocolSource:    source.New(),
			v1alpha1.ProtocolQuake3:    quake3.Protocol{},
		}
	}
	s := &Server{
		opts: opts, started: time.Now(), held: conn.NewBudget(opts.MaxHeldBytes), asks: make(chan struct{}, parallelAsks),
		fetches: make(chan struct{}, parallelFetches), askTimeout: askTimeout,
		files: guard.NewShare(opts.MaxFiles), udpSessions: guard.NewShare(opts.MaxUDPSessions),
		services: map[types.UID]*service{}, fronts: map[route.FrontKey]*front{}, named: map[types.NamespacedName]int{},
	}
	s.stalled = s.held.Part(opts.MaxHeldBytes / stalledPart)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	opts.Metrics.HeldBytes(s.held.Used, opts.MaxHeldBytes)
	return s
}

// Update implements route.Sink. Each new port has been tried once when it
// returns.
func (s *Server) Update(r *route.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv := s.services[r.UID]
	var before *route.Front
	if sv == nil {
		sv = newService(s, r)
		s.services[r.UID] = sv
		s.opts.Metrics.Routes(len(s.services))
		s.named[nameOf(r)]++
	} else {
		// The queue comes second: whoever it sends to a server finds that server
		// in the route.
		was := sv.route.Swap(r)
		sv.handover.follow(r.Direct)
		before = was.Front
		sv.queue.Update(r)
		if nameOf(was) != nameOf(r) {
			s.named[nameOf(r)]++
			s.unname(nameOf(was))
		}
		sv.endLost(was, r)
		sv.endIdle()
	}
	s.end(sv.setPorts(r))
	s.setFront(sv, before, r.Front)
}

// Players implements route.Sink.
func (s *Server) Players(of, pod types.UID, players *route.Players) {
	s.mu.Lock()
	sv := s.services[of]
	s.mu.Unlock()
	if sv != nil {
		sv.queue.Players(pod, players)
	}
}

func nameOf(r *route.Route) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Service}
}

// unname forgets the series of a Service that no route names any more.
func (s *Server) unname(name types.NamespacedName) {
	if s.named[name]--; s.named[name] > 0 {
		return
	}
	delete(s.named, name)
	s.opts.Metrics.Forget(name.Namespace, name.Name)
}

// Remove implements route.Sink. Held clients are refused, relayed ones go on.
func (s *Server) Remove(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv := s.services[uid]
	if sv == nil {
		return
	}
	delete(s.services, uid)
	s.setFront(sv, sv.route.Load().Front, nil)
	s.end(sv.close())
	s.opts.Metrics.Routes(len(s.services))
	s.unname(nameOf(sv.route.Load()))
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

// Carrying is how many clients are relayed or held.
func (s *Server) Carrying() int {
	n := int(s.sessions.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sv := range s.services {
		n += sv.queue.Len()
	}
	return n
}

// Close cuts everything and waits until it has ended.
func (s *Server) Close() {
	s.mu.Lock()
	queues := make([]*hold.Queue, 0, len(s.services))
	for uid, sv := range s.services {
		s.setFront(sv, sv.route.Load().Front, nil)
		s.ended = append(s.ended, sv.close()...)
		queues = append(queues, sv.queue)
		delete(s.services, uid)
	}
	ended := s.ended
	s.mu.Unlock()
	s.cancel()
	for _, l := range ended {
		l.Cut()
		l.Wait()
	}
	for _, q := range queues {
		q.Wait()
	}
	// Nothing begins any more once the loops have ended what they had begun.
	loop.Settle()
	s.wg.Wait()
}

// Routes tells what is served. An empty uid is for all.
func (s *Server) Routes(uid string) informerapi.RoutesResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := informerapi.RoutesResponse{Routes: []informerapi.Route{}}
	for _, sv := range s.some(uid) {
		out.Routes = append(out.Routes, sv.describe())
	}
	slices.SortFunc(out.Routes, func(a, b informerapi.Route) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Sessions tells what is carried. An empty uid is for all.
func (s *Server) Sessions(uid string) informerapi.SessionsResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	out := informerapi.SessionsResponse{Started: s.started, Now: now, Services: []informerapi.Sessions{}}
	for _, sv := range s.some(uid) {
		if sessions, ever := sv.carried(now); ever {
			out.Services = append(out.Services, sessions)
		}
	}
	slices.SortFunc(out.Services, func(a, b informerapi.Sessions) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// some are all services, or the one with a uid.
func (s *Server) some(uid string) map[types.UID]*service {
	if uid == "" {
		return s.services
	}
	if sv := s.services[types.UID(uid)]; sv != nil {
		return map[types.UID]*service{types.UID(uid): sv}
	}
	return nil
}

// dial connects to a server.
func dial(ctx context.Context, address netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout, KeepAliveConfig: listener.KeepAlive, Control: conn.ConnectNow(address)}
	c, err := d.DialContext(ctx, "tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	if err := listener.Watch(c.(*net.TCPConn), listener.KeepAlive); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	return c, nil
}
