package service

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/query"
	"dormouse.dev/dormouse/resolver/internal/route"
)

const (
	// learnTries and learnPause bound asking a backend that doesn't answer.
	learnTries = 3
	learnPause = 5 * time.Second
	// parallelAsks is how many backends of all services are asked at once.
	parallelAsks = 16
)

// asked is a backend that is asked to describe itself.
type asked struct {
	address netip.AddrPort
	pod     types.UID
}

// learn asks a backend to describe itself once it is up, for the answers given while it sleeps.
// One answer a process is enough: what is learnt hardly ever changes while it runs. The port is
// locked.
func (p *Port) learn(port *route.Port) {
	querier := p.Can.Querier
	if querier == nil || p.Policy().Service.Phase != proto.Up {
		return
	}
	i := slices.IndexFunc(port.Backends, usable) // there is one, or the service wouldn't be up
	server := asked{port.Backends[i].Address, port.Backends[i].Pod}
	if p.asked != nil && server == *p.asked {
		return
	}
	p.asked = &server
	if p.learning {
		return // the query that is under way goes on with this backend
	}
	p.learning = true
	p.Running.Go(func() {
		defer utilruntime.HandleCrash()
		p.learnFrom(querier, server)
	})
}

// learnFrom asks a backend until it answers, or until another is to be asked instead.
func (p *Port) learnFrom(querier proto.Querier, server asked) {
	for try := 1; ; try++ {
		var answers proto.Answers
		err := p.askInTurn(p.Key.Network, server.address, func(c net.Conn) (err error) {
			answers, err = querier.Ask(c)
			return err
		})
		if err == nil {
			p.keep(answers)
		} else {
			p.Log.V(1).Info("A server did not tell of itself", "address", server.address.String(), "error", err.Error())
			select {
			case <-time.After(learnPause):
			case <-p.gone:
			case <-p.Context.Done():
			}
		}
		p.mu.Lock()
		another := *p.asked != server
		server = *p.asked
		if p.learning = another || err != nil && try < learnTries; p.learning {
			select {
			case <-p.gone:
				p.learning = false
			case <-p.Context.Done():
				p.learning = false
			default:
			}
		}
		goesOn := p.learning
		p.mu.Unlock()
		if !goesOn {
			return
		}
		if another {
			try = 0
		}
	}
}

// askInTurn asks a backend over a connection of its own. It waits while too many backends are
// being asked.
func (s *Service) askInTurn(network route.Network, address netip.AddrPort, question func(net.Conn) error) error {
	select {
	case s.asks <- struct{}{}:
		defer func() { <-s.asks }()
	case <-s.Context.Done():
		return s.Context.Err()
	}
	return query.Backend(s.Context, s.Route(), network, address, s.QueryTimeout, question)
}

// keep keeps what was learnt from a backend.
func (p *Port) keep(answers proto.Answers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learnt = &answers
	r := p.Route()
	if port, ok := r.Port(p.Key.Name); ok && KeyOf(&port) == p.Key {
		p.policy.Store(p.policyOf(r, &port))
	}
}
