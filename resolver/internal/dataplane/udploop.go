package dataplane

import (
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
)

// Once a session's server has taken what it was sent, all that is left is to pass
// datagrams on, which the loops do: that of the port to the servers, and another one
// to the clients, because one alone would get no more of the processors' time than
// each of those whom it serves.

// udpLane is the part of a port's sessions whose servers one loop listens to. All of
// it is that loop's.
type udpLane struct {
	socket *udpSocket
	loop   *loop.Loop
	// replies are what the servers sent in this turn.
	replies *conn.Replies
}

var _ loop.Handler = (*udpSession)(nil)

// newLane finds the lane for a new session.
func (u *udpSocket) newLane() *udpLane {
	l := u.loop.Other()
	u.mu.Lock()
	defer u.mu.Unlock()
	lane := u.lanes[l]
	if lane == nil {
		if u.lanes == nil {
			u.lanes = map[*loop.Loop]*udpLane{}
		}
		lane = &udpLane{socket: u, loop: l}
		u.lanes[l] = lane
	}
	return lane
}

// adopt takes a live session over from the goroutine that brought it here. It is
// called by the port's loop.
func (s *udpSession) adopt() {
	if !s.take() {
		s.over()
		s.leave()
	}
}

// take waits for what the server sends; false: the session is over.
func (s *udpSession) take() bool {
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
	s.fd, s.lane = fd, s.socket.newLane()
	if s.file.Open(s.lane.loop, fd, s) != nil || s.file.Want(loop.In) != nil {
		s.file.Close()
		return false
	}
	s.adopted, s.taken = true, true
	if s.quiet != nil {
		s.quiet.Stop()
	}
	s.quiet = time.AfterFunc(s.leftOf(s.idle()), s.checkQuiet)
	return true
}

// Ready implements loop.Handler. It is called by the lane's loop.
func (s *udpSession) Ready(uint32) {
	if s.state.Load() != sessionLive {
		return // it ends soon
	}
	switch errno := s.lane.reply(s); errno {
	case 0:
		s.heard(time.Now())
	case unix.EAGAIN:
	case unix.ECONNREFUSED:
		// The server is not there just now, which is not the end: it may be
		// restarting.
		s.socket.port.counts.DatagramRefused()
	default:
		s.over()
	}
}

// reply receives what a session's server sent, which goes to the client at the end
// of the turn.
func (l *udpLane) reply(s *udpSession) unix.Errno {
	if l.replies == nil {
		l.replies = conn.BorrowReplies()
		l.loop.AtEnd(l)
	}
	n, errno := conn.RecvNow(s.fd, l.replies.Room())
	if errno == 0 && l.replies.Add(n, s.replier) {
		l.flush()
	}
	return errno
}

// TurnEnds implements loop.Ender.
func (l *udpLane) TurnEnds() {
	l.flush()
	l.replies.Return()
	l.replies = nil
}

func (l *udpLane) flush() {
	if sent, bytes := l.replies.Send(l.socket.packets.FD()); sent > 0 {
		l.socket.port.counts.DatagramsToClient(sent, bytes)
	}
}

// end ends a session that the loops have. It is called by the lane's, after what its
// server sent is passed on, and goes on in the port's: the socket is closed when
// neither uses it any more.
func (s *udpSession) end() {
	s.file.Leave()
	s.socket.loop.Do(func() {
		s.adopted = false
		_ = unix.Close(s.fd)
		s.leave()
		s.socket.forget(s)
	})
}
