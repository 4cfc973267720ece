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
	// learnTries and learnPause bound asking a server that doesn't answer.
	learnTries = 3
	learnPause = 5 * time.Second
	// parallelAsks is how many servers of all services are asked at once.
	parallelAsks = 16
)

// asked is a server that was asked what it tells of itself.
type asked struct {
	address netip.AddrPort
	pod     types.UID
}

// learn asks a server once it is up what it tells of itself, to tell it while the
// server sleeps. One answer a server will do: what is learnt hardly ever changes
// while it runs. The port is locked.
func (p *Port) learn(port *route.Port) {
	asker := p.Can.Asker
	i := slices.IndexFunc(port.Backends, usable)
	if asker == nil || i < 0 || p.Policy().Service.Phase != proto.Up {
		return
	}
	server := asked{port.Backends[i].Address, port.Backends[i].Pod}
	if server == p.asked {
		return
	}
	p.asked = server
	if p.learning {
		return // the next try is at this one
	}
	p.learning = true
	p.Running.Go(func() {
		defer utilruntime.HandleCrash()
		p.learnFrom(asker, server)
	})
}

// learnFrom asks a server until it answers, or the one that is to be asked instead.
func (p *Port) learnFrom(asker proto.Asker, server asked) {
	for try := 1; ; try++ {
		var answers proto.Answers
		err := p.askInTurn(p.Key.Network, server.address, func(c net.Conn) (err error) {
			answers, err = asker.Ask(c)
			return err
		})
		if err == nil {
			p.learnt(answers)
		} else {
			p.Log.V(1).Info("A server did not tell of itself", "address", server.address.String(), "error", err.Error())
			select {
			case <-time.After(learnPause):
			case <-p.gone:
			case <-p.Context.Done():
			}
		}
		p.mu.Lock()
		another := p.asked != server
		server = p.asked
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

// askInTurn asks a backend over a connection of its own when not too many are asked
// already.
func (s *Service) askInTurn(network route.Network, address netip.AddrPort, question func(net.Conn) error) error {
	select {
	case s.asks <- struct{}{}:
		defer func() { <-s.asks }()
	case <-s.Context.Done():
		return s.Context.Err()
	}
	return query.Backend(s.Context, network, address, s.QueryTimeout, query.Greeting(s.Route(), network), question)
}

// learnt takes in what a backend told.
func (p *Port) learnt(answers proto.Answers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = answers
	r := p.Route()
	if port, ok := r.Port(p.Key.Name); ok && KeyOf(&port) == p.Key {
		p.policy.Store(p.policyOf(r, &port))
	}
}
