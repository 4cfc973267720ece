package udp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

// scratchBytes is more than what protocols answer to clients that have not validated their
// address.
const scratchBytes = 1024

// receivePause follows an error of a UDP socket that stays open.
const receivePause = 5 * time.Millisecond

// socket is one UDP port and its clients' sessions. One loop receives what the clients send;
// other loops receive what their backends send. A session outlives the port's route, and needs
// the socket to answer its client: a socket that is to be closed takes no new sessions and ends
// with its last one.
type socket struct {
	// port is the port that new clients belong to.
	port    atomic.Pointer[Port]
	number  int
	packets *conn.Packets
	loop    *udpLoop

	// io keeps the socket open while the loop receives.
	io     sync.Mutex
	file   loop.File
	closed bool

	// The fields below are the loop's. Scratch is where answers are written; it is made when a
	// datagram is first classified.
	scratch []byte
	// sent and sentBytes count what backends were sent in this turn.
	sent, sentBytes int

	// mu is held by the loop for one map look-up a packet, and else only by sessions that end.
	mu       sync.Mutex
	sessions map[netip.AddrPort]*session
	// closing is set once the socket takes no new sessions, and ending once the last is over.
	closing, ending bool
	// lease is what the socket's listener has.
	lease *lease
}

// Open opens the port, or takes over the socket that has its number.
func (p *Port) Open() (listener.Socket, error) {
	number := int(p.Key.Number)
	if u := p.closing.take(number); u != nil {
		if lease := u.reopen(p); lease != nil {
			return lease, nil
		}
	}
	packets, err := conn.ListenPackets(p.Host, number)
	if err != nil {
		return nil, err
	}
	u := &socket{number: number, packets: packets, loop: udpLoopOf(loop.Next())}
	if err := u.file.Open(u.loop.Loop, packets.FD(), u); err != nil {
		u.file.Close()
		return nil, fmt.Errorf("opening UDP port %d: %w", number, err)
	}
	p.TakeFile() // an earlier socket that could not be waited for gave it back
	return u.leaseTo(p), nil
}

// serve begins to receive.
func (u *socket) serve() error {
	u.io.Lock()
	defer u.io.Unlock()
	if u.closed {
		return nil
	}
	return u.file.Want(loop.In)
}

// resume is serve after a pause, which is longer where that fails.
func (u *socket) resume() {
	if u.serve() != nil {
		time.AfterFunc(receivePause, u.resume)
	}
}

// close closes the socket, which is ending: nobody needs it any more.
func (u *socket) close() {
	u.io.Lock()
	defer u.io.Unlock()
	if u.closed {
		return
	}
	u.closed = true
	u.packets.Closing()
	u.file.Close()
	u.port.Load().GiveFile()
	close(u.lease.ended)
}

func (u *socket) find(client netip.AddrPort) *session {
	u.mu.Lock()
	s := u.sessions[client]
	u.mu.Unlock()
	return s
}

// forget removes a session's entry.
func (u *socket) forget(s *session) {
	u.mu.Lock()
	// Another session of the client may have begun already.
	if u.sessions[s.client] == s {
		delete(u.sessions, s.client)
	}
	last := u.endLocked()
	u.mu.Unlock()
	s.partEnded()
	s.mu.Lock()
	moved := s.moved
	s.mu.Unlock()
	if !moved {
		s.line.Write()
	}
	if last {
		u.end()
	}
}

// admit takes a new client's first datagram.
func (u *socket) admit(datagram []byte, from netip.AddrPort, to netip.Addr) {
	p := u.port.Load()
	k := p.Policy()
	if (k.Classifies || p.Route().AwaitsWake()) && !k.Rules.Permits(from.Addr()) {
		p.Refuse(nil, proto.Denied)
		return
	}
	if u.admitQuery(datagram, from, to) || !u.wanted(datagram, from, to) {
		return
	}
	if s := u.sessionOf(datagram, from, to, false); s != nil {
		s.begin(datagram)
	}
}

// sessionOf makes a client's session; nil: there may be no more sessions.
func (u *socket) sessionOf(datagram []byte, from netip.AddrPort, to netip.Addr, query bool) *session {
	p := u.port.Load()
	s := &session{socket: u, port: p, client: from, replier: u.packets.Replier(u.packets.Source(to), from), max: int32(p.Route().Hold.MaxBytes), query: query, parts: 1} //nolint:gosec // at most 1 MiB
	var reason proto.Reason
	if s.stay, reason = p.Guard.Admit(p.Policy().Rules, from.Addr(), p.Held); reason == "" && !p.takeSession() {
		s.stay.Leave()
		reason = proto.TooManySessions
	}
	if reason != "" {
		p.Refuse(nil, reason)
		u.refuse(s, reason, datagram)
		return nil
	}
	s.kept = s.stay.Budget(p.Held)
	s.line = p.Line(from)
	u.mu.Lock()
	if u.closing {
		u.mu.Unlock()
		s.stay.Leave()
		p.GiveSession()
		return nil
	}
	if u.sessions == nil {
		u.sessions = map[netip.AddrPort]*session{}
	}
	u.sessions[from] = s
	u.mu.Unlock()
	return s
}

// wanted has the protocol classify a datagram, and answers it; false: it is not for the
// backend.
func (u *socket) wanted(datagram []byte, from netip.AddrPort, to netip.Addr) bool {
	return !u.port.Load().Policy().Classifies || u.classify(datagram, from, to)
}

// classify has the protocol classify a datagram, and answers it; false: it is not for the
// backend.
func (u *socket) classify(datagram []byte, from netip.AddrPort, to netip.Addr) bool {
	p := u.port.Load()
	k := p.Policy()
	if u.scratch == nil {
		u.scratch = make([]byte, 0, scratchBytes)
	}
	verdict := k.Classify(p.Protocol, datagram, k.Client(from, u.scratch))
	if !p.MayAnswer(verdict, datagram, from) {
		p.Counts.Refused(string(proto.AnswerRate))
		return false
	}
	switch verdict.Action {
	case proto.Hold:
		return true
	case proto.Answer, proto.Finish:
		p.Counts.QueryAnswered()
	case proto.Refuse:
		p.Counts.Refused(string(proto.Unwanted))
	case proto.NeedMore:
	}
	if len(verdict.Answer) > 0 {
		_ = u.packets.Send(verdict.Answer, u.packets.Source(to), from)
	}
	return false
}

// restart replaces a session whose backend accepted nothing of what it was sent, and gives the
// new one what was sent.
func (u *socket) restart(s *session, sent []byte) {
	n := &session{socket: u, port: s.port, client: s.client, replier: s.replier, max: s.max, queue: sent, kept: s.kept, line: s.line, parts: 1}
	heard, _ := s.clientAt.Last()
	n.clientAt.Note(heard)
	s.mu.Lock()
	n.stay, s.stay = s.stay, guard.Stay{}
	s.moved = true
	s.mu.Unlock()
	u.mu.Lock()
	if u.closing || u.sessions[s.client] != s {
		u.mu.Unlock()
		s.kept.Give(len(sent))
		n.stay.Leave()
		s.over("")
		s.port.Ended(n.line, string(relay.ByServer))
		n.line.Write()
		return
	}
	s.port.ForceSession()
	u.sessions[s.client] = n
	u.mu.Unlock()
	s.over("")
	n.place(s.port.Queue.Pick(s.port.Key.PortID))
}

func (u *socket) all() []*session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.sessions))
}

// refuse tells a client why it is refused; first is its first datagram.
func (u *socket) refuse(s *session, reason proto.Reason, first []byte) {
	text := s.port.Protocol.Refusal(reason, first, s.port.Policy().Client(s.client, nil))
	if len(text) > 0 {
		_ = s.replier.Send(text)
	}
}
