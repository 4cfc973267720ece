package udp

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

// Once a session's backend has accepted what it was sent, all that is left is to pass datagrams
// on, which the loops do. The port's loop sends to the backends, and another loop sends to the
// clients: a single one would get no more processor time than each of the processes that it
// serves.

// udpLoop is what all UDP ports and sessions of a loop share. It is the loop's alone:
// one set of buffers is enough, because a turn is done with them when it ends.
type udpLoop struct {
	*loop.Loop

	batch   *conn.Batch
	replies *conn.Replies
	// replying is the socket whose clients the replies of this turn are for.
	replying *socket
}

var udpLoops sync.Map

func udpLoopOf(l *loop.Loop) *udpLoop {
	own, ok := udpLoops.Load(l)
	if !ok {
		own, _ = udpLoops.LoadOrStore(l, &udpLoop{Loop: l})
	}
	return own.(*udpLoop)
}

// adopt takes a live session over from its goroutine. The port's loop calls it.
func (s *session) adopt() {
	if !s.take() {
		s.move()
		s.leave()
	}
}

// take waits for what the backend sends; false: the session is over, or moves.
func (s *session) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Load() != sessionLive {
		return false
	}
	fd, err := conn.Take(s.upstream)
	if err != nil {
		return false
	}
	s.upstream = nil
	s.loop = udpLoopOf(s.socket.loop.Other())
	if s.file.Open(s.loop.Loop, fd, s) != nil || s.file.Want(loop.In) != nil {
		s.file.Close()
		s.from.Free()
		return false
	}
	s.adopted, s.taken = true, true
	s.writer = nil // the net package's socket would stay in memory with it
	if s.idleTimer != nil {
		s.idleTimer.Stop()
	}
	left, _ := s.left()
	s.idleTimer = time.AfterFunc(left, s.checkIdle)
	return true
}

// Ready implements loop.Handler: clients have sent something.
func (u *socket) Ready(on *loop.Loop, _ uint32) {
	b := u.receive()
	if b == nil {
		return
	}
	now := on.Now()
	for i := range b.Len() {
		datagram, from, to := b.Datagram(i)
		u.mu.Lock()
		s := u.sessions[from]
		u.mu.Unlock()
		if s == nil || !u.taken(s, datagram, from, to, now) {
			u.admit(datagram, from, to)
		}
	}
	if u.sent > 0 {
		u.port.Load().Counts.DatagramsToServer(u.sent, u.sentBytes)
		u.sent, u.sentBytes = 0, 0
	}
}

// receive receives the datagrams that have arrived; nil: there are none.
func (u *socket) receive() *conn.Batch {
	u.io.Lock()
	defer u.io.Unlock()
	if u.closed {
		return nil
	}
	if u.loop.batch == nil {
		u.loop.batch = conn.NewBatch()
	}
	switch errno := u.packets.Receive(u.loop.batch); errno {
	case 0:
		return u.loop.batch
	case unix.EAGAIN:
	default:
		// The socket stays open; trying again at once would not help.
		_ = u.file.Want(0)
		time.AfterFunc(receivePause, u.resume)
	}
	return nil
}

// taken gives a session its client's datagram; false: the session is over. A query of a held
// client is answered at once, or its answer would come when nobody waits for it any more.
func (u *socket) taken(s *session, datagram []byte, from netip.AddrPort, to netip.Addr, now time.Time) bool {
	if s.state.Load() == sessionHeld && !u.wanted(datagram, from, to) {
		s.touch(&s.clientAt, now)
		return true
	}
	if s.query && s.port.Joins(datagram, from) {
		// A client that joins counts as another than the one that queried: its backend is
		// chosen, it gets a slot, and it keeps the service awake.
		s.line.Answered()
		s.over("")
		return false
	}
	return s.fromClient(datagram, now)
}

// fromClient takes a datagram of the client; false: the session is over, and the datagram is
// the first of another session.
func (s *session) fromClient(datagram []byte, now time.Time) bool {
	if !s.validated.Load() && s.answered.Load() {
		s.validate()
	}
	s.touch(&s.clientAt, now)
	if s.state.Load() == sessionLive {
		s.relay(datagram)
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state.Load() {
	case sessionLive:
		s.relay(datagram)
	case sessionHeld, sessionMoves:
		// The first one is kept whatever its size: it wakes the service.
		size := lengthBytes + len(datagram)
		if len(s.queue) > 0 && len(s.queue)+size > int(s.max) || !s.budget().All(size) {
			s.port.Counts.DatagramDropped()
			return true
		}
		s.keep(datagram)
	default:
		return false
	}
	return true
}

// relay sends the backend a datagram that came while the session is live. It waits for nothing:
// where there is no room a datagram is lost, as on a line that is full.
func (s *session) relay(datagram []byte) {
	// The line counts it first: an answer may end the session at once.
	if s.line != nil {
		s.line.AddBytes(int64(len(datagram)), 0)
	}
	var failed error
	if !s.adopted {
		failed = s.writer.WriteNow(datagram)
	} else if _, errno := conn.SendNow(s.file.FD, datagram); errno != 0 {
		failed = errno
	}
	if failed != nil && !s.sendAgain(datagram, failed, s.writeNow) {
		return
	}
	if s.port != s.socket.port.Load() {
		s.port.Counts.DatagramsToServer(1, len(datagram))
		return
	}
	s.socket.sent++
	s.socket.sentBytes += len(datagram)
}

// sendAgain goes on with a datagram that the line has counted, after a write failed with an
// error that may be of an earlier datagram. It reports whether the datagram was sent.
func (s *session) sendAgain(datagram []byte, earlier error, write func(datagram []byte) error) (sent bool) {
	err := earlier
	if conn.Passing(earlier) {
		err = write(datagram)
	}
	if err != nil {
		s.lostOne(err)
		s.line.AddBytes(-int64(len(datagram)), 0)
	}
	// A second error is of this datagram, and no earlier one was lost.
	if err == nil || refusal(err) != refusal(earlier) {
		s.lostOne(earlier)
	}
	return err == nil
}

// lostOne counts a datagram that the network reported as not delivered.
func (s *session) lostOne(err error) {
	if refusal(err) {
		s.port.Counts.DatagramRefused()
		s.refused.Store(true)
	} else {
		s.port.Counts.UnsentToServer()
	}
}

// refusal reports whether the error says that nothing is bound to the backend's port.
func refusal(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// writeNow is for the port's loop, and waits for nothing.
func (s *session) writeNow(datagram []byte) error {
	if !s.adopted {
		return s.writer.WriteNow(datagram)
	}
	if _, errno := conn.SendNow(s.file.FD, datagram); errno != 0 {
		return errno
	}
	return nil
}

// Ready implements loop.Handler: the backend has sent a datagram. The client gets it at the end
// of the turn, or when another port has replies. The session's loop calls this.
func (s *session) Ready(on *loop.Loop, _ uint32) {
	if s.state.Load() != sessionLive {
		return // it is about to end
	}
	l := s.loop
	if l.replying != s.socket {
		if l.replies == nil {
			l.replies = conn.NewReplies()
		}
		if l.replying == nil {
			l.AtEnd(l)
		} else {
			l.flush()
		}
		l.replying = s.socket
	}
	n, errno := conn.RecvNow(s.file.FD, l.replies.Room())
	switch {
	case errno == 0:
		if s.line != nil {
			s.line.AddBytes(0, int64(n))
		}
		if l.replies.Add(n, &s.replier) {
			l.flush()
		}
		s.heard(on.Now())
	case errno == unix.EAGAIN:
	case conn.Unreachable(errno) && !s.answered.Load():
		// A backend that never answered may be gone for good: what the client sends next begins
		// another session.
		s.over(string(relay.ByServer))
	case conn.Passing(errno):
		// The backend may be restarting, or the path to it may be interrupted.
		s.lostOne(errno)
	default:
		s.over(string(relay.ByServer))
	}
}

// TurnEnds implements loop.Ender.
func (l *udpLoop) TurnEnds() {
	l.flush()
	l.replying = nil
}

func (l *udpLoop) flush() {
	sent, bytes, lost := l.replies.Send(l.replying.file.FD)
	if sent > 0 {
		l.replying.port.Load().Counts.DatagramsToClient(sent, bytes)
	}
	if lost > 0 {
		l.replying.port.Load().Counts.UnsentToClient(lost)
	}
}

// end ends a session that the loops have. The session's loop calls it after passing on what its
// backend sent, and the port's loop goes on: the socket is closed when neither uses it any
// more.
func (s *session) end() {
	s.file.Leave()
	s.socket.loop.Do(func() {
		s.adopted = false
		_ = unix.Close(s.file.FD)
		s.from.Free()
		s.leave()
		s.socket.forget(s)
	})
}
