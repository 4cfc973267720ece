package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/test/gamewire"
)

// session is one TCP connection or the datagrams from one address. Only the
// loop that reads its socket touches it, last excepted.
type session struct {
	peer, local     string
	firstByte       time.Time
	messages, bytes uint64
	last            atomic.Int64
}

func (s *Server) newSession(peer, local net.Addr) *session {
	return &session{peer: peer.String(), local: local.String()}
}

// take counts a message of n bytes.
func (s *session) take(n int) {
	s.messages++
	s.bytes += uint64(n)
}

func (s *Server) reply(session *session, message gamewire.Message) gamewire.Reply {
	return gamewire.Reply{
		Number:    message.Number,
		Payload:   message.Payload,
		Server:    s.id,
		Boot:      s.boot,
		Started:   s.started.UnixNano(),
		Listening: s.listening.Load(),
		FirstByte: session.firstByte.UnixNano(),
		Peer:      session.peer,
		Local:     session.local,
		Messages:  session.messages,
		Bytes:     session.bytes,
	}
}

// counters are what the server has seen in all.
type counters struct {
	tcpAccepted, tcpOpen, tcpIn, tcpOut, udpIn, udpOut atomic.Int64

	mu          sync.Mutex
	udpSessions map[*session]struct{}
	// set replaces the counted number of players while it is not nil.
	set *int64
}

func (c *counters) addTCPIn(n int)  { c.tcpIn.Add(int64(n)) }
func (c *counters) addTCPOut(n int) { c.tcpOut.Add(int64(n)) }

func (c *counters) addUDPSession(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.udpSessions == nil {
		c.udpSessions = make(map[*session]struct{})
	}
	c.udpSessions[s] = struct{}{}
}

func (c *counters) removeUDPSession(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.udpSessions, s)
}

func (c *counters) setPlayers(n *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = n
}

// players is the number that was set, else that of those who play.
func (c *counters) players(now time.Time) int64 {
	c.mu.Lock()
	set := c.set
	c.mu.Unlock()
	if set != nil {
		return *set
	}
	return c.playing(now)
}

// playing counts open TCP connections, and UDP sessions that sent something
// lately.
func (c *counters) playing(now time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.tcpOpen.Load()
	for session := range c.udpSessions {
		if now.Sub(time.Unix(0, session.last.Load())) <= udpPlayerTime {
			n++
		}
	}
	return n
}
