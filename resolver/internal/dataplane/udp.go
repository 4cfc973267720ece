package dataplane

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// scratchBytes is more than what protocols answer to who may not be where it says.
const scratchBytes = 1024

// receivePause follows an error of a UDP socket that stays open.
const receivePause = 5 * time.Millisecond

// udpSocket is one UDP port and its clients' sessions. One loop receives what the
// clients send; what their servers send is the others'. A session outlives the port's
// route, and needs the socket to answer its client: a socket that is to be closed
// takes no new sessions and ends with its last one.
type udpSocket struct {
	// port is whose the new clients are.
	port    atomic.Pointer[servedPort]
	number  int
	packets *conn.Packets
	loop    *udpLoop

	// io keeps the socket open while the loop receives.
	io     sync.Mutex
	file   loop.File
	closed bool

	// What follows is the loop's. Scratch is where answers are written. It is there once
	// something was judged.
	scratch []byte
	// sent and sentBytes are what they were given in it.
	sent, sentBytes int

	// mu is held for a map look-up a packet, by the loop; sessions that end are the
	// only others.
	mu       sync.Mutex
	sessions map[netip.AddrPort]*udpSession
	// closing says that it takes no new sessions, and ending that the last is over.
	closing, ending bool
	// lease is its listener's.
	lease *udpLease
}

// openUDP opens a port, or takes over the socket that has been it so far.
func openUDP(p *servedPort, host string, number int) (*udpLease, error) {
	if u := p.service.server.closing.take(number); u != nil {
		if lease := u.reopen(p); lease != nil {
			return lease, nil
		}
	}
	packets, err := conn.ListenPackets(host, number)
	if err != nil {
		return nil, err
	}
	u := &udpSocket{number: number, packets: packets, loop: udpLoopOf(loop.Next())}
	if err := u.file.Open(u.loop.Loop, packets.FD(), u); err != nil {
		u.file.Close()
		return nil, fmt.Errorf("opening UDP port %d: %w", number, err)
	}
	p.takeFile() // an earlier socket that could not be waited for gave it back
	return u.leaseTo(p), nil
}

// serve receives from now on.
func (u *udpSocket) serve() error {
	u.io.Lock()
	defer u.io.Unlock()
	if u.closed {
		return nil
	}
	return u.file.Want(loop.In)
}

// resume is serve after a pause, which is longer where that fails.
func (u *udpSocket) resume() {
	if u.serve() != nil {
		time.AfterFunc(receivePause, u.resume)
	}
}

// Ready implements loop.Handler.
func (u *udpSocket) Ready(on *loop.Loop, _ uint32) {
	b := u.loop.received()
	if !u.receive(b) {
		return
	}
	now := on.Now()
	for i := range b.Len() {
		datagram, from, to := b.Datagram(i)
		if s := u.find(from); s == nil || !u.taken(s, datagram, from, to, now) {
			u.admit(datagram, from, to)
		}
	}
	if u.sent > 0 {
		u.port.Load().counts.DatagramsToServer(u.sent, u.sentBytes)
		u.sent, u.sentBytes = 0, 0
	}
}

// receive receives what there is; false: nothing.
func (u *udpSocket) receive(b *conn.Batch) bool {
	u.io.Lock()
	defer u.io.Unlock()
	if u.closed {
		return false
	}
	errno := u.packets.Receive(b)
	if errno != 0 && errno != unix.EAGAIN {
		// The socket stays open; it is no use to spin.
		_ = u.file.Want(0)
		time.AfterFunc(receivePause, u.resume)
	}
	return errno == 0
}

// close closes the socket, which nobody needs any more: it is ending.
func (u *udpSocket) close() {
	u.io.Lock()
	defer u.io.Unlock()
	if u.closed {
		return
	}
	u.closed = true
	u.packets.Closing()
	u.file.Close()
	u.port.Load().giveBackFile()
	close(u.lease.ended)
}

func (u *udpSocket) find(client netip.AddrPort) *udpSession {
	u.mu.Lock()
	s := u.sessions[client]
	u.mu.Unlock()
	return s
}

// forget ends a session's entry.
func (u *udpSocket) forget(s *udpSession) {
	u.mu.Lock()
	// Another session of the client may have begun already.
	if u.sessions[s.client] == s {
		delete(u.sessions, s.client)
	}
	last := u.endLocked()
	u.mu.Unlock()
	s.port.service.forceSession(-1)
	s.port.service.strangers.gone(s)
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
func (u *udpSocket) admit(datagram []byte, from netip.AddrPort, to netip.Addr) {
	p := u.port.Load()
	k := p.known.Load()
	if (k.judges || p.service.route.Load().AwaitsWake()) && !k.rules.Permits(from.Addr()) {
		p.refuse(nil, proto.Denied)
		return
	}
	if u.admitQuery(datagram, from, to) || !u.wanted(datagram, from, to) {
		return
	}
	if s := u.enter(datagram, from, to, false); s != nil {
		s.begin(datagram)
	}
}

// enter makes a client's session; nil: there may be no more.
func (u *udpSocket) enter(datagram []byte, from netip.AddrPort, to netip.Addr, query bool) *udpSession {
	p := u.port.Load()
	server := p.service.server
	s := &udpSession{socket: u, port: p, client: from, source: u.packets.Source(to), max: p.service.route.Load().Hold.MaxBytes, query: query}
	var reason proto.Reason
	if s.visit, reason = p.service.guard.Enter(p.known.Load().rules, from.Addr(), server.held); reason == "" && !p.enterSession() {
		s.visit.Leave()
		reason = proto.TooManySessions
	}
	if reason != "" {
		p.refuse(nil, reason)
		u.refuse(s, reason, datagram)
		return nil
	}
	s.kept = s.visit.Budget(server.held)
	s.line = p.line(from)
	u.mu.Lock()
	if u.closing {
		u.mu.Unlock()
		s.visit.Leave()
		p.service.forceSession(-1)
		return nil
	}
	if u.sessions == nil {
		u.sessions = map[netip.AddrPort]*udpSession{}
	}
	u.sessions[from] = s
	u.mu.Unlock()
	return s
}

// taken gives a session its client's datagram; false: the session is over. What a
// client asks while it is held is answered, or the answer would come when nobody
// waits for it any more.
func (u *udpSocket) taken(s *udpSession, datagram []byte, from netip.AddrPort, to netip.Addr, now time.Time) bool {
	if s.state.Load() == sessionHeld && !u.wanted(datagram, from, to) {
		s.touch(&s.clientAt, now)
		return true
	}
	if s.query && s.port.joins(datagram, from) {
		// Who joins is another client than who asked: it gets a server by choice, and
		// a seat, and keeps the service awake.
		s.line.Answered()
		s.over("")
		return false
	}
	return s.fromClient(datagram, now)
}

// wanted lets the protocol judge a datagram, and answers it; false: it is not for
// the server.
func (u *udpSocket) wanted(datagram []byte, from netip.AddrPort, to netip.Addr) bool {
	return !u.port.Load().known.Load().judges || u.judge(datagram, from, to)
}

// judge is wanted where the protocol is asked.
func (u *udpSocket) judge(datagram []byte, from netip.AddrPort, to netip.Addr) bool {
	p := u.port.Load()
	k := p.known.Load()
	if u.scratch == nil {
		u.scratch = make([]byte, 0, scratchBytes)
	}
	verdict := p.judgeDatagram(k, datagram, k.client(from, u.scratch))
	if !p.mayBeAnswered(k, verdict, datagram, from) {
		p.counts.Refused(string(proto.AnswerRate))
		return false
	}
	switch verdict.Action {
	case proto.Hold:
		return true
	case proto.Answer, proto.Finish:
		p.counts.QueryAnswered()
	case proto.Refuse:
		p.counts.Refused(string(proto.Unwanted))
	case proto.NeedMore:
	}
	if len(verdict.Answer) > 0 {
		_ = u.packets.Send(verdict.Answer, u.packets.Source(to), from)
	}
	return false
}

// again puts a new session in the place of one whose server took nothing of what
// it was sent, and gives it that.
func (u *udpSocket) again(s *udpSession, sent []byte) {
	n := &udpSession{socket: u, port: s.port, client: s.client, source: s.source, max: s.max, queue: sent, kept: s.kept, line: s.line}
	heard, _ := s.clientAt.last()
	n.clientAt.note(heard)
	s.mu.Lock()
	n.visit, s.visit = s.visit, guard.Visit{}
	s.moved = true
	s.mu.Unlock()
	u.mu.Lock()
	if u.closing || u.sessions[s.client] != s {
		u.mu.Unlock()
		s.kept.Give(len(sent))
		n.visit.Leave()
		s.over("")
		s.port.leaves(n.line, string(forward.ByServer))
		n.line.Write()
		return
	}
	s.port.service.forceSession(1)
	u.sessions[s.client] = n
	u.mu.Unlock()
	s.over("")
	n.place(s.port.service.queue.Pick(s.port.key.name))
}

// endLost ends a port's sessions whose server is among those that were lost.
func (u *udpSocket) endLost(p *servedPort, lost map[netip.AddrPort]bool) {
	for _, s := range u.all() {
		if s.port == p {
			s.lose(lost)
		}
	}
}

// has says that it has sessions of a port.
func (u *udpSocket) has(p *servedPort) bool {
	return slices.ContainsFunc(u.all(), func(s *udpSession) bool { return s.port == p })
}

func (u *udpSocket) all() []*udpSession {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.sessions))
}

// refuse tells a client why it is sent away, that sent a datagram first.
func (u *udpSocket) refuse(s *udpSession, reason proto.Reason, first []byte) {
	text := s.port.protocol.Refusal(reason, first, s.port.known.Load().client(s.client, nil))
	if len(text) > 0 {
		_ = u.packets.Send(text, s.source, s.client)
	}
}
