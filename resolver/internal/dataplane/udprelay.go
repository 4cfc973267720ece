package dataplane

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// refusalTime is how long a server's host has to say that a datagram met no
	// bound port.
	refusalTime = 20 * time.Millisecond
	// unansweredTime is how long what was held is kept for another server after
	// it was sent to one that doesn't answer: a refusal may come late, or only
	// for a later datagram.
	unansweredTime = time.Second
)

// Probe implements hold.Datagrams: the client's own first datagram, from its own
// socket, finds out whether the server's port is bound.
func (s *udpSession) Probe(_ context.Context, address netip.AddrPort) hold.Probed {
	if s.connect(address) != nil { //nolint:contextcheck // it doesn't wait
		return hold.Failed
	}
	first, upstream, err := s.sendFirst()
	switch {
	case errors.Is(err, errSpent):
		return hold.Spent
	case upstream == nil:
		return hold.Failed
	}
	_ = upstream.SetReadDeadline(time.Now().Add(refusalTime))
	buf := conn.Datagrams.Get()
	defer conn.Datagrams.Put(buf)
	var n int
	answered := false
	if err == nil {
		n, err = upstream.Read(*buf)
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		s.port.counts.DatagramRefused()
		return hold.NotBound
	case err == nil:
		answered = true
		// Somebody else may have granted a server meanwhile.
		s.heard(time.Now())
		s.line.Carried(int64(len(first)), int64(n))
		s.replied((*buf)[:n], s.socket.packets.Send((*buf)[:n], s.source, s.client))
	case errors.Is(err, os.ErrDeadlineExceeded):
		// Nobody said no.
		s.line.Carried(int64(len(first)), 0)
	default:
		return hold.Failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.port.counts.DatagramsToServer(1, len(first))
	// The session may have ended meanwhile, and what it held with it.
	if s.state.Load() == sessionHeld {
		size := lengthBytes + len(first)
		if answered {
			s.budget().Give(size)
		} else {
			s.sent = append(s.sent, s.queue[:size]...)
		}
		s.queue = s.queue[size:]
	}
	return hold.Taken
}

// errSpent says that nothing is left of what was held, because none could be sent.
var errSpent = errors.New("nothing is left to send")

// sendFirst sends the first of what is held, and leaves out what is too large for the
// way to the server. Upstream is nil where nothing was sent.
func (s *udpSession) sendFirst() (first []byte, upstream *net.UDPConn, err error) {
	for {
		s.mu.Lock()
		if s.state.Load() != sessionHeld || len(s.queue) == 0 {
			s.mu.Unlock()
			return nil, nil, nil
		}
		upstream = s.upstream
		first, _ = nextHeld(s.queue)
		s.mu.Unlock()
		_, err = upstream.Write(first)
		if !errors.Is(err, syscall.EMSGSIZE) {
			return first, upstream, err
		}
		s.port.counts.UnsentToServer()
		if s.leaveOut(lengthBytes + len(first)) {
			return nil, nil, errSpent
		}
	}
}

// leaveOut takes the first bytes off what is held. A session that holds nothing then
// is over: others wait for what it finds out of the server.
func (s *udpSession) leaveOut(size int) (over bool) {
	s.mu.Lock()
	if s.state.Load() != sessionHeld {
		s.mu.Unlock()
		return false
	}
	s.budget().Give(size)
	s.queue = s.queue[size:]
	if len(s.queue) > 0 {
		s.mu.Unlock()
		return false
	}
	ticket := s.ticket
	s.overLocked("")
	if ticket != nil {
		ticket.Leave()
	}
	return true
}

// start relays the session in a goroutine of its own.
func (s *udpSession) start(grant hold.Grant) {
	s.port.service.server.wg.Go(func() { s.run(grant) })
}

// run delivers what is held, and passes on the server's replies until it is known
// that it takes what it is sent. From then on the socket's loop has the session.
func (s *udpSession) run(grant hold.Grant) {
	defer utilruntime.HandleCrash()
	p := s.port
	if err := s.reach(grant); err != nil {
		grant.Seat.Leave()
		if conn.Local(err) {
			s.noRoom()
		}
		s.giveBack(grant.Address)
		return
	}
	s.seat = grant.Seat
	s.line.Served(grant.Address)
	reader, err := conn.NewDatagramReader(s.upstream)
	if err != nil {
		s.over(string(forward.ByServer))
		grant.Seat.Leave()
		return
	}
	s.replier = s.socket.packets.Replier(s.source, s.client)
	p.begin(s.query)
	p.service.strangers.add(s)
	if s.serve(reader, grant) {
		s.socket.loop.Do(s.adopt)
		return
	}
	s.socket.loop.Do(func() {
		s.move()
		s.leave()
	})
}

// serve is the part of run that needs waiting; false: the session is over, or moves.
func (s *udpSession) serve(reader *conn.Reader, grant hold.Grant) bool {
	p := s.port
	defer context.AfterFunc(p.service.server.ctx, func() { s.over(string(forward.ByCut)) })()
	s.deliver(reader)
	// While what was held was delivered nobody else looked.
	s.mu.Lock()
	lost, unsent := s.lost, s.unsent
	s.mu.Unlock()
	if s.answered.Load() && !unsent {
		s.dropSent()
	}
	if now, ok := p.service.route.Load().Port(p.key.name); lost || ok && !now.Has(grant.Address) {
		s.retry()
		return false
	}
	return s.settle(reader, grant)
}

// leave gives back what a session with a server took.
func (s *udpSession) leave() {
	s.port.end(s.query)
	s.seat.Leave()
}

// errUnproven says that a server took nothing of what it was sent.
var errUnproven = errors.New("the server took no datagram")

// reach connects to a server and, where nobody knows whether it takes datagrams,
// finds that out with the first.
func (s *udpSession) reach(grant hold.Grant) error {
	p := s.port
	err := s.connect(grant.Address)
	switch {
	case !grant.Unproven:
		return err
	case err == nil && s.Probe(p.service.server.ctx, grant.Address) == hold.Taken:
		p.service.queue.Proven(p.key.name, grant.Address)
		return nil
	case conn.Local(err) || s.state.Load() == sessionOver:
		// The server may be up all the same.
		p.service.queue.Untried(p.key.name, grant.Address)
		return cmp.Or(err, net.ErrClosed)
	}
	p.service.queue.Avoid(p.key.name, grant.Address)
	return cmp.Or(err, errUnproven)
}

// noRoom ends a session for which this host has no socket. That tells nothing of the
// server.
func (s *udpSession) noRoom() {
	s.port.service.makeRoom(s.port)
	s.port.counts.Refused(string(proto.TooManySessions))
	s.Refused(proto.TooManySessions)
}

// settle waits until the server has answered, or for a while; false: the session is
// over, or moves.
func (s *udpSession) settle(reader *conn.Reader, grant hold.Grant) bool {
	p := s.port
	until := time.Now().Add(unansweredTime)
	for !s.answered.Load() {
		left := s.leftOf(s.idle())
		if left <= 0 {
			s.over(string(forward.ByTimeout))
			return false
		}
		deadline := time.Now().Add(left)
		if until.Before(deadline) {
			deadline = until
		}
		_ = s.upstream.SetReadDeadline(deadline)
		datagram, err := reader.Next(conn.MaxDatagram)
		switch {
		case err == nil:
			s.reply(datagram)
			reader.Done()
			s.dropSent()
		case refusal(err), conn.Unreachable(err):
			s.lostOne(err)
			p.service.queue.Avoid(p.key.name, grant.Address)
			s.retry()
			return false
		case conn.Passing(err):
			s.lostOne(err)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return false
		case time.Now().Before(until):
		case s.refused.Load():
			// The socket tells of a refusal once, and told who sent.
			p.service.queue.Avoid(p.key.name, grant.Address)
			s.retry()
			return false
		default:
			s.dropSent()
			return true
		}
	}
	return true
}

// retry has a live session move whose server took nothing of what it was sent.
func (s *udpSession) retry() {
	if s.query {
		return // who asks, asks again
	}
	s.mu.Lock()
	s.state.CompareAndSwap(sessionLive, sessionMoves)
	s.mu.Unlock()
}

// move ends a session whose server is lost. If it moves, another gets what the server
// was given and did not answer, and what came since. The port's loop calls it, so
// nothing comes in between.
func (s *udpSession) move() {
	s.mu.Lock()
	var kept []byte
	if s.state.Load() == sessionMoves {
		kept = append(s.sent, s.queue...)
		s.sent, s.queue = nil, nil
	}
	s.mu.Unlock()
	if len(kept) > 0 {
		s.socket.again(s, kept)
	}
	s.over(string(forward.ByServer))
}

// takeSent takes what the server was given and did not answer, and with it the
// charge for it.
func (s *udpSession) takeSent() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

func (s *udpSession) dropSent() { s.budget().Give(len(s.takeSent())) }

// deliver delivers what is held, and passes on what the server says meanwhile:
// replies that nobody reads would soon overflow the socket's buffer.
func (s *udpSession) deliver(reader *conn.Reader) {
	upstream := s.upstream
	_ = upstream.SetReadDeadline(time.Time{})
	delivered := make(chan struct{})
	s.port.service.server.wg.Go(func() {
		defer utilruntime.HandleCrash()
		defer close(delivered)
		s.flush()
		_ = upstream.SetReadDeadline(time.Now())
	})
	for {
		datagram, err := reader.Next(conn.MaxDatagram)
		switch {
		case err == nil:
			s.reply(datagram)
			reader.Done()
		case conn.Passing(err):
			s.lostOne(err)
		default:
			// All is delivered, or the session is over.
			<-delivered
			return
		}
	}
}

// flush delivers what is held in order and makes the session live: from then on
// the client's datagrams go to the server as they come.
func (s *udpSession) flush() {
	p := s.port
	p.pace.begin()
	defer p.pace.end()
	for {
		s.mu.Lock()
		queue := s.queue
		s.queue = nil
		if len(queue) == 0 {
			next := sessionLive
			if s.lost && !s.query {
				// Its server may be another's by now.
				next = sessionMoves
			}
			if s.state.CompareAndSwap(sessionHeld, next) && next == sessionLive {
				s.visit.Served()
			}
			ticket := s.ticket
			if s.quiet != nil {
				s.quiet.Stop()
			}
			s.mu.Unlock()
			if ticket != nil {
				ticket.Delivered()
			}
			return
		}
		if s.sent == nil {
			s.sent = queue
		} else {
			s.sent = append(s.sent, queue...)
		}
		s.mu.Unlock()
		var datagram []byte
		for len(queue) > 0 && !s.keptForAnother(len(queue)) {
			datagram, queue = nextHeld(queue)
			p.pace.wait(p.service.server.ctx)
			if s.send(datagram, s.write) {
				p.counts.DatagramsToServer(1, len(datagram))
			}
		}
	}
}

// keptForAnother says that the rest of what is being delivered is not to be sent,
// because the session is over or its server was lost. That rest, its last bytes,
// is then another server's, and all of it if this one never answered.
func (s *udpSession) keptForAnother(rest int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Load() == sessionOver {
		return true
	}
	if s.lost && !s.unsent && s.answered.Load() {
		taken := len(s.sent) - rest
		s.budget().Give(taken)
		s.sent = s.sent[taken:]
	}
	s.unsent = s.unsent || s.lost
	return s.lost
}

// giveBack returns a grant that came to nothing.
func (s *udpSession) giveBack(address netip.AddrPort) {
	p := s.port
	s.mu.Lock()
	ticket, over := s.ticket, s.state.Load() == sessionOver
	s.mu.Unlock()
	switch {
	case ticket == nil && over:
	case s.query:
		p.service.queue.Avoid(p.key.name, address)
		s.answerInstead()
	case ticket == nil:
		// It was picked at once and has not waited yet.
		p.service.queue.Avoid(p.key.name, address)
		s.place(p.service.queue.Pick(p.key.name))
	case over:
		ticket.Abandon()
	default:
		ticket.Back(address)
	}
}
