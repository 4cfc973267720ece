// Package tcp serves TCP clients. A client's life goes one way, and so do the calls:
//
//	accept   port.go     a loop accepts, and gives the socket to a port or a front
//	         fastpath.go nobody needs to hear the client: connect and relay, in the loop
//	admit    front.go    at a front: whom does it want?
//	         admit.go    may it have a backend? proxyproto.go finds out where it is,
//	                     classify.go and query.go what it wants
//	hold     hold.go     it waits for its ticket in the service's queue, and for its bytes;
//	                     waiter.go keeps it waiting
//	deliver  deliver.go  connect to a backend, and replay what was held
//	relay    relay.go    loops move the bytes, httpidle.go ends idle connections of HTTP
//	end      client.go   what it took is given back
//
// The socket is the same from accept to relay, and a client has a goroutine of its own until
// it is relayed.
package tcp

import (
	"net/netip"
	"sync"
	"sync/atomic"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

// parallelDials is how many of a service's held clients connect to backends at once.
const parallelDials = 128

// Service is what a service's TCP ports have in common.
type Service struct {
	// dials bounds how many held clients connect at once. It is made for the first of them: most
	// services sleep, and it would take more memory than the rest.
	dials   chan struct{}
	once    sync.Once
	follows follows
}

// NewService makes one.
func NewService() *Service { return &Service{} }

// dial waits for a held client's turn to connect. What it returns ends that.
func (s *Service) dial() (done func()) {
	s.once.Do(func() { s.dials = make(chan struct{}, parallelDials) })
	s.dials <- struct{}{}
	return func() { <-s.dials }
}

// Port is a service's TCP port.
type Port struct {
	*service.Port
	classifier

	tcp *Service
	// unfollowed is how clients are relayed whom nothing follows; nil before the first.
	unfollowed atomic.Pointer[relay.Options]
}

// NewPort makes a port.
func NewPort(p *service.Port, s *Service) *Port {
	return &Port{Port: p, classifier: classifier{protocol: p.Protocol, counts: p.Counts, guard: &p.Guard, terms: p}, tcp: s}
}

// Open opens the port.
func (p *Port) Open() (listener.Socket, error) {
	return listener.OpenTCP(p.Host, int(p.Key.Number), p.accept)
}

// accept takes a client that a loop has accepted. It takes the fast path where nobody needs to
// hear it first.
func (p *Port) accept(on *loop.Loop, fd int, from netip.AddrPort) {
	defer utilruntime.HandleCrash()
	r, k := p.Route(), p.Policy()
	heard := k.Classifies || k.ClassifiesQueries || r.AwaitsWake() || r.Proxy.Send || r.Proxy.Trusts(from.Addr()) ||
		p.Can.Requests && r.Balance == ""
	if heard || !p.fastPath(on, fd, from) {
		p.serve(on, fd, from)
	}
}

// serve serves a client in a goroutine of its own, until it is held or relayed or gone.
func (p *Port) serve(on *loop.Loop, fd int, from netip.AddrPort) {
	stream, err := conn.NewStream(on.Near(), fd)
	if err != nil {
		return
	}
	p.Running.Go(func() {
		defer utilruntime.HandleCrash()
		c := newClient(p.Shared, p.Held, stream, from)
		p.Counts.ClientTaken()
		p.Wanted(c.line)
		proxy := &p.Route().Proxy
		c.announced = proxy.Send
		if proxy.Trusts(from.Addr()) && !p.introduced(c) {
			c.end()
			return
		}
		if k := p.Policy(); !p.admit(c, k, k.Rules) {
			c.end()
		}
	})
}

// introduced is introduce within a connection's files, and the place of a client that isn't admitted yet: who
// may send a header need not be who sends none.
func (p *Port) introduced(c *Client) bool {
	if !p.TakeConnection() {
		p.refuse(c.line, proto.TooManyConnections)
		return false
	}
	defer p.GiveConnection()
	defer p.occupy(c).End()
	return p.introduce(c)
}

// newClient makes a client of a connection, whose bytes are charged to a budget.
func newClient(s *service.Shared, held *conn.Budget, c *conn.Stream, from netip.AddrPort) *Client {
	return &Client{
		shared: s, conn: c, reader: conn.NewReader(c, held), budget: held, line: s.AccessLog.Begin(from),
		endpoints: endpoints{source: from},
	}
}
