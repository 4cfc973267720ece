package tcp

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

// A client takes the fast path to a backend where the service is up and nobody needs to hear
// the client first. It has no goroutine, nor anything else of its own but the relay.

// fastClient is a client on its way to a backend.
type fastClient struct {
	*fastRelay
	loop    *loop.Loop
	client  int
	from    netip.AddrPort
	release hold.Release
	// server is the socket that is connecting, until the timer ends that.
	server loop.File
	timer  *time.Timer
	began  time.Time
	over   bool
}

// fastRelay is what is left of such a client once it is relayed.
type fastRelay struct {
	port *Port
	stay guard.Stay
	slot *hold.Slot
	line *accesslog.Line
}

// fastPath serves an accepted client; false: it has to be served in the usual way. So is a
// client whose backend can't be reached.
func (p *Port) fastPath(on *loop.Loop, client int, from netip.AddrPort) bool {
	release, ok := p.Queue.Pick(p.Key.PortID)
	if !ok {
		return false
	}
	line := p.Line(from)
	stay, ok := p.takePlace(line, from.Addr(), p.Policy().Rules)
	if !ok {
		p.counts.ClientTaken()
		line.Write()
		release.Slot.Leave()
		_ = unix.Close(client)
		return true
	}
	s := &fastClient{
		fastRelay: &fastRelay{port: p, stay: stay, slot: release.Slot, line: line},
		loop:      on.Near(), client: client, from: from, release: release,
	}
	s.begin()
	server, pending, err := conn.Connect(release.Address)
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

// begin counts the client from the first try on, or the service could be put to sleep
// meanwhile.
func (s *fastClient) begin() {
	p := s.port
	s.began = time.Now()
	p.Running.Add(1)
	p.Active.Open.Add(1)
	p.Begin(false)
}

func (r *fastRelay) end() {
	p := r.port
	r.slot.Leave()
	r.stay.Leave()
	p.GiveConnection()
	p.End(false)
	p.Active.Heard.Note(time.Now())
	p.Active.Open.Add(-1)
	p.Running.Done()
}

// fail serves the client in the usual way, because its backend can't be reached.
func (s *fastClient) fail(err error) {
	s.port.unreached(s.release, s.began, err)
	s.port.serve(s.loop, s.client, s.from)
	s.end()
}

// wait waits until the backend is connected. Nothing is read of the client meanwhile.
func (s *fastClient) wait(server int) {
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

func (s *fastClient) giveUp(err error) {
	if !s.over {
		s.over = true
		s.server.Close()
		s.fail(err)
	}
}

// Ready implements loop.Handler: the backend is connected, or can't be.
func (s *fastClient) Ready(*loop.Loop, uint32) {
	s.timer.Stop()
	if err := conn.Connected(s.server.FD); err != nil {
		s.giveUp(err)
		return
	}
	s.over = true
	s.server.Leave()
	s.relay(s.server.FD)
}

func (s *fastClient) relay(server int) {
	p := s.port
	s.release.Reached(time.Now())
	p.counts.ClientTaken()
	s.stay.Served()
	s.line.Served(s.release.Address)
	relay.Start(p.Relays, s.loop, s.client, server, p.relayOptions(relaying{}, nil), s.ended)
}

// ended is called by the loop once the relay is over.
func (r *fastRelay) ended(e relay.Ended) {
	r.port.ended(r.line, e)
	r.line.Write()
	r.end()
}
