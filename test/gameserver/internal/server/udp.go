package server

import (
	"errors"
	"net"
	"time"

	"dormouse.dev/dormouse/test/gamewire"
)

// Times of a UDP session, which has no end of its own: it counts as a player
// while datagrams come, and is forgotten when conntrack would forget it.
const (
	udpPlayerTime  = 10 * time.Second
	udpSessionTime = 120 * time.Second
)

// serveDatagrams gives each datagram to handle, with its session, until the
// socket is closed. What handle returns is sent back.
func (s *Server) serveDatagrams(conn net.PacketConn, handle func(*session, []byte) []byte) {
	sessions := make(map[string]*session)
	buffer := make([]byte, 64<<10)
	var swept time.Time
	for {
		n, peer, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // An ICMP error of an earlier reply; the socket is fine.
		}
		now := time.Now()
		if now.Sub(swept) > time.Second {
			s.forget(sessions, now)
			swept = now
		}
		current, ok := sessions[peer.String()]
		if !ok {
			current = s.newSession(peer, conn.LocalAddr())
			current.firstByte = now
			sessions[peer.String()] = current
			s.counters.addUDPSession(current)
		}
		current.last.Store(now.UnixNano())
		current.take(n)
		s.counters.udpIn.Add(1)
		if reply := handle(current, buffer[:n]); reply != nil {
			if _, err := conn.WriteTo(reply, peer); err == nil {
				s.counters.udpOut.Add(1)
			}
		}
	}
}

func (s *Server) forget(sessions map[string]*session, now time.Time) {
	for peer, session := range sessions {
		if now.Sub(time.Unix(0, session.last.Load())) > udpSessionTime {
			delete(sessions, peer)
			s.counters.removeUDPSession(session)
		}
	}
}

func (s *Server) answerDatagram(session *session, datagram []byte) []byte {
	message, err := gamewire.ParseMessage(datagram)
	if err != nil {
		return nil
	}
	reply, err := gamewire.AppendReply(nil, s.reply(session, message))
	if err != nil {
		return nil
	}
	return reply
}

func (s *Server) echoDatagram(_ *session, datagram []byte) []byte { return datagram }
