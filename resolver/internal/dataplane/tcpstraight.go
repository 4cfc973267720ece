package dataplane

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// A client that nobody needs to hear first, of a service that is up, goes straight to
// a server: without a goroutine, or anything else of its own but the relay.

// straight says that a client may go straight to a server just now.
func (p *servedPort) straight(from netip.Addr) bool {
	r, k := p.service.route.Load(), p.known.Load()
	if k.judges || k.sorts || r.AwaitsWake() || r.Proxy.Send || r.Proxy.Trusts(from) {
		return false
	}
	_, http := p.protocol.(http1.Protocol)
	return !http || r.Balance != ""
}

// straightTCP is a client on its way to a server, or with it.
type straightTCP struct {
	port   *servedPort
	loop   *loop.Loop
	client int
	from   netip.AddrPort
	slowly listener.Clients
	visit  guard.Visit
	grant  hold.Grant
	// server is what is being connected, until the timer says that it takes too long.
	server loop.File
	timer  *time.Timer
	began  time.Time
	line   *accesslog.Line
	over   bool
}

// goesStraight takes a client that is accepted; false: it is to be taken as any other
// is. So is one whose server can't be reached, by slowly.
func (p *servedPort) goesStraight(on *loop.Loop, client int, from netip.AddrPort, slowly listener.Clients) bool {
	defer utilruntime.HandleCrash()
	if !p.straight(from.Addr()) {
		return false
	}
	grant, ok := p.service.queue.Pick(p.key.name)
	if !ok {
		return false
	}
	line := p.line(from)
	visit, ok := p.visit(line, from.Addr(), p.known.Load().rules)
	if !ok {
		p.counts.ClientTaken()
		line.Write()
		grant.Seat.Leave()
		_ = unix.Close(client)
		return true
	}
	s := &straightTCP{port: p, loop: on.Near(), client: client, from: from, slowly: slowly, visit: visit, grant: grant, line: line}
	s.begin()
	server, pending, err := conn.Connect(grant.Address, listener.Prepare)
	switch {
	case err != nil:
		s.fail(err)
	case pending:
		s.loop.Do(func() { s.wait(server) })
	default:
		s.relay(server)
	}
	return true
}

// begin counts the client from the first try on, or the service might be put to sleep
// under it.
func (s *straightTCP) begin() {
	p := s.port
	s.began = time.Now()
	p.service.server.wg.Add(1)
	p.service.active.open.Add(1)
	p.begin(false)
}

func (s *straightTCP) end() {
	p := s.port
	s.grant.Seat.Leave()
	s.visit.Leave()
	p.service.server.files.Force(&p.service.files, -filesOfTCP)
	p.end(false)
	p.service.active.touch(time.Now())
	p.service.active.open.Add(-1)
	p.service.server.wg.Done()
}

// fail has the client go another way, for its server can't be reached.
func (s *straightTCP) fail(err error) {
	s.port.unreached(s.grant, s.began, err)
	s.slowly(s.loop, s.client, s.from)
	s.end()
}

// wait waits until the server is connected. Nothing is read of the client meanwhile.
func (s *straightTCP) wait(server int) {
	err := s.server.Open(s.loop, server, s)
	if err == nil {
		err = s.server.Want(loop.Out)
	}
	if err != nil {
		s.server.Close()
		s.fail(err)
		return
	}
	s.timer = time.AfterFunc(hold.DialTimeout, func() {
		s.loop.Do(func() { s.giveUp(unix.ETIMEDOUT) })
	})
}

func (s *straightTCP) giveUp(err error) {
	if !s.over {
		s.over = true
		s.server.Close()
		s.fail(err)
	}
}

// Ready implements loop.Handler: the server is connected, or can't be.
func (s *straightTCP) Ready(*loop.Loop, uint32) {
	s.timer.Stop()
	if err := conn.Connected(s.server.FD()); err != nil {
		s.giveUp(err)
		return
	}
	s.over = true
	s.server.Leave()
	s.relay(s.server.FD())
}

func (s *straightTCP) relay(server int) {
	p := s.port
	s.grant.Reached(time.Now())
	p.counts.ClientTaken()
	s.visit.Served()
	s.line.Served(s.grant.Address)
	forward.Start(p.service.server.ctx, s.loop, s.client, server, p.relaying(nil, nil), func(e forward.Ended) {
		p.relayed(s.line, e)
		s.line.Write()
		s.end()
	})
}
