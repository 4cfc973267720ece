package dataplane

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

const (
	// askTimeout bounds what a server has to say of itself, the connection apart.
	askTimeout = time.Second
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
// while it runs. It is called with the server's lock.
func (p *servedPort) learn(port *route.Port) {
	asker, ok := p.protocol.(proto.Asker)
	i := slices.IndexFunc(port.Backends, usable)
	if !ok || i < 0 || p.known.Load().service.Phase != proto.Up {
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
	p.service.server.wg.Go(func() {
		defer utilruntime.HandleCrash()
		p.learnFrom(asker, server)
	})
}

// learnFrom asks a server until it answers, or the one that is to be asked instead.
func (p *servedPort) learnFrom(asker proto.Asker, server asked) {
	s := p.service.server
	for try := 1; ; try++ {
		var answers proto.Answers
		err := p.service.askInTurn(p.key.network, server.address, func(c net.Conn) (err error) {
			answers, err = asker.Ask(c)
			return err
		})
		if err == nil {
			p.learnt(answers)
		} else {
			s.opts.Log.V(1).Info("A server did not tell of itself", "address", server.address.String(), "error", err.Error())
			select {
			case <-time.After(learnPause):
			case <-p.gone:
			case <-s.ctx.Done():
			}
		}
		s.mu.Lock()
		another := p.asked != server
		server = p.asked
		if p.learning = another || err != nil && try < learnTries; p.learning {
			select {
			case <-p.gone:
				p.learning = false
			case <-s.ctx.Done():
				p.learning = false
			default:
			}
		}
		goesOn := p.learning
		s.mu.Unlock()
		if !goesOn {
			return
		}
		if another {
			try = 0
		}
	}
}

// askInTurn asks a server over a connection of its own when not too many are asked
// already.
func (sv *service) askInTurn(network route.Network, address netip.AddrPort, question func(net.Conn) error) error {
	s := sv.server
	select {
	case s.asks <- struct{}{}:
		defer func() { <-s.asks }()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	return ask(s.ctx, network, address, s.askTimeout, sv.greeting(network), question)
}

// greeting is what a connection begins with that is no client's.
func (sv *service) greeting(network route.Network) []byte {
	if network == route.TCP && sv.route.Load().Proxy.Send {
		return localHeader
	}
	return nil
}

// ask asks a server over a connection of its own.
func ask(ctx context.Context, network route.Network, address netip.AddrPort, timeout time.Duration, greeting []byte, question func(net.Conn) error) error {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(ctx, string(network), address.String())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(max(timeout, askTimeout)))
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })()
	if len(greeting) > 0 {
		if _, err := c.Write(greeting); err != nil {
			return err
		}
	}
	return question(c)
}

// learnt takes in what a server told.
func (p *servedPort) learnt(answers proto.Answers) {
	s := p.service.server
	s.mu.Lock()
	defer s.mu.Unlock()
	p.told = answers
	r := p.service.route.Load()
	if port, ok := r.Port(p.key.name); ok && keyOf(&port) == p.key {
		p.known.Store(p.knownOf(r, &port))
	}
}

// dialUp connects to a server that is up: where its protocol can tell more than
// that it takes connections, it is asked first.
func (sv *service) dialUp(ctx context.Context, name string, address netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	port, ok := sv.route.Load().Port(name)
	asker, asks := sv.server.opts.Protocols[port.Protocol].(proto.Asker)
	if ok && asks && !port.ByConnect {
		err := ask(ctx, route.TCP, address, timeout, sv.greeting(route.TCP), func(c net.Conn) error {
			answers, err := asker.Ask(c)
			if err == nil {
				sv.learnt(&port, answers)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return dial(ctx, address, timeout)
}

// learnt takes in what a server of a port told.
func (sv *service) learnt(port *route.Port, answers proto.Answers) {
	sv.server.mu.Lock()
	p := sv.port(keyOf(port))
	sv.server.mu.Unlock()
	if p != nil {
		p.learnt(answers)
	}
}
