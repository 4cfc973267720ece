package service

import (
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// Service is one ElasticService at work.
type Service struct {
	*Shared
	// Queue holds its clients.
	Queue *hold.Queue
	// Guard tracks its clients by their sources.
	Guard guard.Guard
	// Active counts its clients, and those of an earlier ElasticService of its Service.
	Active *Activity
	// Held is the service's share of what all services hold. It is charged with the bytes that
	// are kept for the service's clients. Stalled is such a share of what clients and servers have yet to take.
	Held, Stalled *conn.Budget

	route atomic.Pointer[route.Route]
	// ownFiles and ownSessions are the service's part of the shared capacity.
	ownFiles    Files
	ownSessions atomic.Int32

	// mu guards ports, which are the open ones.
	mu    sync.Mutex
	ports []*Port
}

// New makes the service of a route. Its clients are counted in active.
func New(shared *Shared, r *route.Route, active *Activity) *Service {
	s := &Service{Shared: shared, Active: active, Held: shared.Held.Share(), Stalled: shared.Stalled.Share()}
	s.route.Store(r)
	s.Queue = hold.New(r, hold.Options{
		Waker: shared.Waker, QuickDials: shared.quickDials, Protocols: shared.Protocols, Learnt: s.learnt, Metrics: shared.Metrics, Log: shared.Log,
	})
	return s
}

// Route is the newest version of the route. It is never changed.
func (s *Service) Route() *route.Route { return s.route.Load() }

// Update takes a new version of the route, and returns the previous one. The queue comes
// second: a client that it releases to a backend finds that backend in the route.
func (s *Service) Update(r *route.Route) (was *route.Route) {
	was = s.route.Swap(r)
	s.Queue.Update(r)
	return was
}

// Name is the name in the service's series.
func (s *Service) Name() types.NamespacedName { return NameOf(s.Route()) }

// NameOf is the name in the series of a route's service.
func NameOf(r *route.Route) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Service}
}

// learnt keeps what was learnt from a backend of a port.
func (s *Service) learnt(name string, answers proto.Answers) {
	s.mu.Lock()
	at := slices.IndexFunc(s.ports, func(p *Port) bool { return p.Key.Name == name })
	var p *Port
	if at >= 0 {
		p = s.ports[at]
	}
	s.mu.Unlock()
	if p != nil {
		p.keep(answers)
	}
}

func (s *Service) add(p *Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports = append(s.ports, p)
}

func (s *Service) remove(p *Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports = slices.DeleteFunc(s.ports, func(other *Port) bool { return other == p })
}
