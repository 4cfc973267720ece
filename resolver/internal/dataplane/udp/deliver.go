package udp

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
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

const (
	// refusalTime is how long a backend's host has to reply that a datagram met no bound port.
	refusalTime = 20 * time.Millisecond
	// unansweredTime is how long what was held is kept for another backend after it was sent to
	// one that doesn't answer. A refusal may come late, or only for a later datagram.
	unansweredTime = time.Second
)

// Try implements hold.Datagrams: the client's own first datagram, from its own socket, finds
// out whether the backend's port is bound.
func (s *session) Try(_ context.Context, address netip.AddrPort) hold.Tried {
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
		s.port.Counts.DatagramRefused()
		return hold.NotBound
	case err == nil:
		answered = true
		// It may have been released meanwhile.
		s.heard(time.Now())
		s.line.AddBytes(int64(len(first)), int64(n))
		s.replied((*buf)[:n], s.replier.Send((*buf)[:n]))
	case errors.Is(err, os.ErrDeadlineExceeded):
		// Nothing refused it.
		s.line.AddBytes(int64(len(first)), 0)
	default:
		return hold.Failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.port.Counts.DatagramsToServer(1, len(first))
	// The session may have ended meanwhile, and what it held is gone then.
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

// errSpent means that nothing is left of what was held: none of it could be sent.
var errSpent = errors.New("nothing is left to send")

// sendFirst sends the first datagram that is held, and drops those that are too large for the
// path to the backend. Upstream is nil where nothing was sent.
func (s *session) sendFirst() (first []byte, upstream *net.UDPConn, err error) {
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
		s.port.Counts.UnsentToServer()
		if s.leaveOut(lengthBytes + len(first)) {
			return nil, nil, errSpent
		}
	}
}

// leaveOut drops the first datagram of what is held. A session that holds nothing then is over,
// because others wait for what it finds out about the backend.
func (s *session) leaveOut(size int) (over bool) {
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
func (s *session) start(release hold.Release) {
	s.mu.Lock()
	if s.parts > 0 { // else it was over before it was released
		s.parts++
	}
	s.mu.Unlock()
	s.port.Running.Go(func() { s.run(release) })
}

// run delivers what is held, and passes on the backend's replies until the backend is known to
// accept datagrams. From then on the socket's loop has the session.
func (s *session) run(release hold.Release) {
	defer utilruntime.HandleCrash()
	p := s.port
	if err := s.reach(release); err != nil {
		defer s.partEnded()
		release.Slot.Leave()
		if conn.Local(err) {
			s.noRoom()
		}
		s.giveBack(release.Address)
		return
	}
	s.slot = release.Slot
	s.line.Served(release.Address)
	reader, err := conn.NewDatagramReader(s.upstream)
	if err != nil {
		defer s.partEnded()
		s.over(string(relay.ByServer))
		release.Slot.Leave()
		return
	}
	p.Begin(true)
	p.udp.strangers.add(s)
	if s.serve(reader, release) {
		s.socket.loop.Do(s.adopt)
		return
	}
	s.socket.loop.Do(func() {
		s.move()
		s.leave()
	})
}

// serve is the part of run that waits; false: the session is over, or moves.
func (s *session) serve(reader *conn.Reader, release hold.Release) bool {
	p := s.port
	defer context.AfterFunc(p.Context, func() { s.over(string(relay.ByCut)) })()
	s.deliver(reader)
	// Nobody checked while what was held was delivered.
	s.mu.Lock()
	lost, unsent := s.lost, s.unsent
	s.mu.Unlock()
	if s.answered.Load() && !unsent {
		s.dropSent()
	}
	if now, ok := p.Route().Port(p.Key.Name); lost || ok && !now.Has(release.Address) {
		s.retry()
		return false
	}
	return s.settle(reader, release)
}

// leave gives back what a session with a backend took.
func (s *session) leave() {
	s.port.udp.strangers.uncount(s)
	s.port.End(true)
	s.slot.Leave()
	s.partEnded()
}

// errUnproven means that a backend accepted nothing of what it was sent.
var errUnproven = errors.New("the server took no datagram")

// reach connects to a backend. Where it isn't known whether the backend accepts datagrams, the
// first one finds out.
func (s *session) reach(release hold.Release) error {
	p := s.port
	err := s.connect(release.Address)
	switch {
	case !release.Unproven:
		return err
	case err == nil && s.Try(p.Context, release.Address) == hold.Taken:
		p.Queue.Answered(p.Key.PortID, release.Address)
		return nil
	case conn.Local(err) || s.state.Load() == sessionOver:
		// The backend may be up all the same.
		p.Queue.Untried(p.Key.PortID, release.Address)
		return cmp.Or(err, net.ErrClosed)
	}
	p.Queue.Avoid(p.Key.PortID, release.Address)
	return cmp.Or(err, errUnproven)
}

// noRoom ends a session for which this host has no socket. That implies nothing about the
// backend.
func (s *session) noRoom() {
	s.port.makeRoom()
	s.port.Counts.Refused(string(proto.TooManySessions))
	s.refuse(proto.TooManySessions)
}

// settle waits until the backend has answered, or for a while; false: the session is over, or
// moves.
func (s *session) settle(reader *conn.Reader, release hold.Release) bool {
	p := s.port
	until := time.Now().Add(unansweredTime)
	for !s.answered.Load() {
		left := s.leftOf(s.idle())
		if left <= 0 {
			s.over(string(relay.ByTimeout))
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
			p.Queue.Avoid(p.Key.PortID, release.Address)
			s.retry()
			return false
		case conn.Passing(err):
			s.lostOne(err)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return false
		case time.Now().Before(until):
		case s.refused.Load():
			// The socket reports a refusal once: here the send got it.
			p.Queue.Avoid(p.Key.PortID, release.Address)
			s.retry()
			return false
		default:
			s.dropSent()
			return true
		}
	}
	return true
}

// retry makes a live session move because its backend accepted nothing of what it was sent.
func (s *session) retry() {
	if s.query {
		return // a client that queries asks again
	}
	s.mu.Lock()
	s.state.CompareAndSwap(sessionLive, sessionMoves)
	s.mu.Unlock()
}

// move ends a session whose backend is lost. If the session moves, another one gets what the
// backend was sent and did not answer, and what came since. The port's loop calls it, so
// nothing comes in between.
func (s *session) move() {
	s.mu.Lock()
	var kept []byte
	if s.state.Load() == sessionMoves {
		kept = append(s.sent, s.queue...)
		s.sent, s.queue = nil, nil
	}
	s.mu.Unlock()
	if len(kept) > 0 {
		s.socket.restart(s, kept)
	}
	s.over(string(relay.ByServer))
}

// takeSent takes what the backend was sent and did not answer, with its charge to the budget.
func (s *session) takeSent() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

func (s *session) dropSent() { s.budget().Give(len(s.takeSent())) }

// deliver delivers what is held, and passes on the backend's replies meanwhile: unread they
// would soon overflow the socket's buffer.
func (s *session) deliver(reader *conn.Reader) {
	upstream := s.upstream
	_ = upstream.SetReadDeadline(time.Time{})
	delivered := make(chan struct{})
	s.port.Running.Go(func() {
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

// flush delivers what is held in order and makes the session live: from then on the client's
// datagrams go to the backend as they come.
func (s *session) flush() {
	p := s.port
	turn := p.pace.begin()
	defer turn.end()
	earlier := sentBefore{at: time.Now()}
	for {
		s.mu.Lock()
		queue := s.queue
		s.queue = nil
		if len(queue) == 0 {
			next := sessionLive
			if s.lost && !s.query {
				// The backend's address may belong to another pod by now.
				next = sessionMoves
			}
			if s.state.CompareAndSwap(sessionHeld, next) && next == sessionLive {
				s.stay.Served()
			}
			ticket := s.ticket
			if s.idleTimer != nil {
				s.idleTimer.Stop()
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
		for len(queue) > 0 {
			if turn.next() {
				s.forgetSent(&earlier, len(queue))
			}
			if s.keptForAnother(len(queue)) {
				break
			}
			datagram, queue = nextHeld(queue)
			turn.wait(p.Context)
			if s.send(datagram) {
				p.Counts.DatagramsToServer(1, len(datagram))
			}
		}
	}
}

// sentBefore is how much of what the backend was sent it had been sent at a time.
type sentBefore struct {
	bytes int
	at    time.Time
}

// forgetSent gives up what is kept for another backend without need, in the middle of a delivery
// that may take long: all that an answering backend was sent, else what it was sent
// unansweredTime ago. Rest is how much of it wasn't sent yet.
func (s *session) forgetSent(earlier *sentBefore, rest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Load() == sessionOver || s.lost {
		return
	}
	gone := 0
	switch sent := len(s.sent) - rest; {
	case s.answered.Load():
		gone = sent
	case time.Since(earlier.at) > unansweredTime:
		gone = earlier.bytes
		*earlier = sentBefore{bytes: sent - gone, at: time.Now()}
	}
	s.budget().Give(gone)
	s.sent = s.sent[gone:]
}

// send sends the backend a datagram that was held, and reports whether it was sent.
func (s *session) send(datagram []byte) bool {
	s.line.AddBytes(int64(len(datagram)), 0)
	err := s.write(datagram)
	return err == nil || s.sendAgain(datagram, err, s.write)
}

// write is for the goroutine that delivers what was held.
func (s *session) write(datagram []byte) error {
	_, err := s.writer.Write(datagram)
	return err
}

// keptForAnother reports whether the rest of what is being delivered must not be sent, because
// the session is over or its backend was lost. That rest, its last bytes, is then for another
// backend, and all of it if this one never answered.
func (s *session) keptForAnother(rest int) bool {
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

// giveBack returns a release that came to nothing.
func (s *session) giveBack(address netip.AddrPort) {
	p := s.port
	s.mu.Lock()
	ticket, over := s.ticket, s.state.Load() == sessionOver
	coming := ticket == nil && s.queued
	if coming {
		s.back = &address
	}
	s.mu.Unlock()
	switch {
	case ticket == nil && over, coming:
	case s.query:
		p.Queue.Avoid(p.Key.PortID, address)
		s.answerInstead()
	case ticket == nil:
		// It was picked at once and has not waited yet.
		p.Queue.Avoid(p.Key.PortID, address)
		s.place(p.Queue.Pick(p.Key.PortID))
	case over:
		ticket.Abandon()
	default:
		ticket.Back(address)
	}
}
