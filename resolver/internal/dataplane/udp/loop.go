package udp

import (
	"sync"
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
	if s.idleTimer != nil {
		s.idleTimer.Stop()
	}
	s.idleTimer = time.AfterFunc(s.leftOf(s.idle()), s.checkIdle)
	return true
}

// Ready implements loop.Handler. The session's loop calls it.
func (s *session) Ready(on *loop.Loop, _ uint32) {
	if s.state.Load() != sessionLive {
		return // it is about to end
	}
	switch errno := s.loop.reply(s); {
	case errno == 0:
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

// received is the batch to receive into.
func (l *udpLoop) received() *conn.Batch {
	if l.batch == nil {
		l.batch = conn.NewBatch()
	}
	return l.batch
}

// reply receives what a session's backend sent. It goes to the client at the end of the turn,
// or when another port has replies.
func (l *udpLoop) reply(s *session) unix.Errno {
	if l.replying != s.socket {
		l.replyTo(s.socket)
	}
	n, errno := conn.RecvNow(s.file.FD(), l.replies.Room())
	if errno == 0 && s.line != nil {
		s.line.AddBytes(0, int64(n))
	}
	if errno == 0 && l.replies.Add(n, &s.replier) {
		l.flush()
	}
	return errno
}

func (l *udpLoop) replyTo(u *socket) {
	if l.replies == nil {
		l.replies = conn.NewReplies()
	}
	if l.replying == nil {
		l.AtEnd(l)
	} else {
		l.flush()
	}
	l.replying = u
}

// TurnEnds implements loop.Ender.
func (l *udpLoop) TurnEnds() {
	l.flush()
	l.replying = nil
}

func (l *udpLoop) flush() {
	sent, bytes, lost := l.replies.Send(l.replying.packets.FD())
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
		_ = unix.Close(s.file.FD())
		s.from.Free()
		s.leave()
		s.socket.forget(s)
	})
}
