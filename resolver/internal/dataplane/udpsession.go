package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/forward"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// lengthBytes precede each held datagram.
	lengthBytes = 4
	// unansweredIdle is how long a live session may be silent whose server never said
	// anything.
	unansweredIdle = 30 * time.Second
)

var errLost = errors.New("the server is not one of the service's any more")

// A session is held, then live, then over. Only live is read without its lock. One that
// moves has lost its server before that answered: what its client says is kept for
// another, until the port's loop has begun the session that gets it.
const (
	sessionHeld int32 = iota
	sessionLive
	sessionMoves
	sessionOver
)

// udpSession is one client of a UDP port: what it sent while it had no server,
// and the socket of its own with which the server knows it apart from others.
type udpSession struct {
	// What is used for each datagram is together, and seldom written. Once the loops have
	// the session its socket is fd, to which the port's loop sends, and from which its own
	// receives by way of file.
	socket *udpSocket
	state  atomic.Int32
	// port is the one that the client came to: the socket may be another's by now.
	port    *servedPort
	adopted bool
	// query says that the client only asked, which keeps nothing awake.
	query bool
	// refused says that the server refused a datagram, answered that it sent one.
	refused, answered atomic.Bool
	// proven says that the client spoke again after it was answered.
	proven atomic.Bool
	fd     int
	// line is the client's in the access log, if there is one.
	line *accesslog.Line
	// clientAt and serverAt are when each last sent a datagram.
	clientAt, serverAt moment
	loop               *udpLoop
	file               loop.File
	// replier is for whoever passes on what the server sends, and writer for whoever
	// sends to it, of whom there is one at a time.
	replier conn.Replier
	writer  *conn.Writer

	client netip.AddrPort
	// evicted says that it made room, and gone that its place is given back. The
	// service's strangers guard both.
	evicted, gone bool
	// source makes replies come from the address that the client sent to.
	source []byte
	max    int
	// kept bounds what is kept of the client.
	kept *conn.Budget
	// seat is the session's place on its server.
	seat *hold.Seat

	mu    sync.Mutex
	visit guard.Visit
	// queue is what is held: each datagram with its length before it. Sent is
	// what of it a server was given that has not answered so far, for a moment.
	// Both are charged to the budget.
	queue  []byte
	sent   []byte
	ticket *hold.Ticket
	quiet  *time.Timer
	// server is the address that upstream is connected to.
	server netip.AddrPort
	// lost says that the address became nobody's, or another's, before the
	// session was live.
	lost bool
	// unsent says that sent was kept for another server, because this one was lost
	// before it was sent.
	unsent   bool
	upstream *net.UDPConn
	// from is the port of the socket, upstream or fd.
	from conn.SourcePort
	// taken says that the loops have the session.
	taken bool
	// moved says that the line is another session's, which is the client's now.
	moved bool
	// cutShort says that its end in the middle of the game was counted.
	cutShort bool
}

var _ hold.Datagrams = (*udpSession)(nil)

// fromClient takes a datagram of the client; false: the session is over, and the
// datagram is the first of another.
func (s *udpSession) fromClient(datagram []byte, now time.Time) bool {
	if !s.proven.Load() && s.answered.Load() {
		s.prove()
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
		// The first is kept whatever its size: it is what wakes the server.
		size := lengthBytes + len(datagram)
		if len(s.queue) > 0 && len(s.queue)+size > s.max || !s.budget().All(size) {
			s.port.counts.DatagramDropped()
			return true
		}
		s.keep(datagram)
	default:
		return false
	}
	return true
}

// lose ends a live session whose server is among those that were lost. What that took
// a moment ago and did not answer is the next server's.
func (s *udpSession) lose(lost map[netip.AddrPort]bool) {
	s.mu.Lock()
	is := (s.upstream != nil || s.taken) && lost[s.server]
	s.lost = s.lost || is
	// One that is not live yet looks itself.
	ends := is && s.state.Load() == sessionLive
	s.mu.Unlock()
	switch {
	case !ends:
	case s.answered.Load() || s.query:
		s.over(string(forward.ByServer))
	default:
		s.retry()
		s.socket.loop.Do(s.move)
	}
}

func (s *udpSession) budget() *conn.Budget { return s.kept }

// keep adds a datagram, which has been charged, to what is held.
func (s *udpSession) keep(datagram []byte) {
	s.queue = binary.NativeEndian.AppendUint32(s.queue, uint32(len(datagram))) //nolint:gosec // a datagram's size
	s.queue = append(s.queue, datagram...)
}

// begin takes the first datagram and finds the session its server or its place in
// the queue.
func (s *udpSession) begin(datagram []byte) {
	p := s.port
	grant, ok := p.service.queue.Pick(p.key.name)
	if !ok && !s.mayAsk() {
		return
	}
	if !ok && p.service.queue.Len() >= p.service.route.Load().Hold.MaxConnections {
		// A flood is not even kept to be refused.
		p.counts.Refused(string(proto.QueueFull))
		s.line.Refused(string(proto.QueueFull))
		s.socket.refuse(s, proto.QueueFull, datagram)
		s.over("")
		return
	}
	s.touch(&s.clientAt, time.Now())
	size := lengthBytes + len(datagram)
	if ok {
		// It goes on at once: who is held elsewhere must not keep clients from a
		// server that is up.
		s.budget().Force(size)
	} else if !s.budget().All(size) {
		p.counts.DatagramDropped()
		p.counts.Refused(string(proto.TooManyBytes))
		s.Refused(proto.TooManyBytes)
		return
	}
	p.counts.ClientTaken()
	s.mu.Lock()
	s.keep(datagram)
	s.mu.Unlock()
	s.place(grant, ok)
}

// place sends the session to a server that was picked or, if none was, to the
// queue.
func (s *udpSession) place(grant hold.Grant, picked bool) {
	p := s.port
	if picked {
		s.start(grant)
		return
	}
	if !s.mayAsk() {
		return
	}
	ticket, err := p.service.queue.Enter(p.key.name, s, p.protocol.HoldAtMost())
	if err != nil {
		reason := proto.QueueFull
		if errors.Is(err, hold.ErrGone) {
			reason = proto.RouteGone
		}
		s.Refused(reason)
		return
	}
	s.held(ticket)
}

// touch notes that the client or the server, whose moment it is, said something. It
// keeps the service awake once the client has proven to be one.
func (s *udpSession) touch(at *moment, now time.Time) {
	at.note(now)
	if !s.query && s.proven.Load() {
		s.port.service.active.touch(now)
	}
}

// nextHeld cuts the first datagram off what is held.
func nextHeld(queue []byte) (datagram, rest []byte) {
	n := binary.NativeEndian.Uint32(queue)
	return queue[lengthBytes : lengthBytes+n], queue[lengthBytes+n:]
}

// send gives the server a datagram, and tells whether it was sent. Write does so, and
// may wait for room in the socket's buffer or not. The line has it before: who is answered
// may end the session at once.
func (s *udpSession) send(datagram []byte, write func(datagram []byte) error) (sent bool) {
	if s.line != nil {
		s.line.Carried(int64(len(datagram)), 0)
		defer func() {
			if !sent {
				s.line.Carried(-int64(len(datagram)), 0)
			}
		}()
	}
	earlier := write(datagram)
	if earlier == nil {
		return true
	}
	// It may be the fate of an earlier datagram, and then this one was not sent.
	err := earlier
	if conn.Passing(earlier) {
		err = write(datagram)
	}
	if err != nil {
		s.lostOne(err)
	}
	// The same again is of this one, and no earlier one was lost.
	if err == nil || refusal(err) != refusal(earlier) {
		s.lostOne(earlier)
	}
	return err == nil
}

// lostOne counts a datagram of which the network told that it did not arrive.
func (s *udpSession) lostOne(err error) {
	if refusal(err) {
		s.port.counts.DatagramRefused()
		s.refused.Store(true)
	} else {
		s.port.counts.UnsentToServer()
	}
}

// refusal reports whether nothing is bound to the server's port.
func refusal(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// write is for the goroutine that delivers what was held.
func (s *udpSession) write(datagram []byte) error {
	_, err := s.writer.Write(datagram)
	return err
}

// writeNow is for the port's loop, which waits for nobody: where there is no room a
// datagram is lost, as on a line that is full.
func (s *udpSession) writeNow(datagram []byte) error {
	if !s.adopted {
		return s.writer.WriteNow(datagram)
	}
	if _, errno := conn.SendNow(s.fd, datagram); errno != 0 {
		return errno
	}
	return nil
}

// relay gives the server a datagram that came while the session is live.
func (s *udpSession) relay(datagram []byte) {
	if !s.send(datagram, s.writeNow) {
		return
	}
	switch {
	case s.port == s.socket.port.Load():
		s.socket.sent++
		s.socket.sentBytes += len(datagram)
	default:
		s.port.counts.DatagramsToServer(1, len(datagram))
	}
}

// reply gives the client a datagram. It is for the goroutine that waits for them.
func (s *udpSession) reply(datagram []byte) {
	s.heard(time.Now())
	s.line.Carried(0, int64(len(datagram)))
	s.replied(datagram, s.replier.Send(datagram))
}

// heard notes that the server said something.
func (s *udpSession) heard(now time.Time) {
	s.touch(&s.serverAt, now)
	if !s.answered.Load() {
		s.answered.Store(true)
	}
	s.port.pace.answered()
}

func (s *udpSession) replied(datagram []byte, err error) {
	if err != nil {
		s.port.counts.UnsentToClient(1)
		return
	}
	s.port.counts.DatagramsToClient(1, len(datagram))
}

// idle is how long the session may be silent.
func (s *udpSession) idle() time.Duration {
	idle := s.port.service.server.opts.UDPIdle
	if s.query {
		idle = min(idle, queryIdle)
	}
	if s.state.Load() == sessionLive && !s.answered.Load() {
		idle = min(idle, unansweredIdle)
	}
	return idle
}

// held keeps the ticket, and lets go of a client that is silent for long. The
// session may have had its server, or its end, before it got here.
func (s *udpSession) held(ticket *hold.Ticket) {
	s.mu.Lock()
	s.ticket = ticket
	state := s.state.Load()
	if state == sessionHeld {
		s.quiet = time.AfterFunc(s.idle(), s.checkQuiet)
	}
	s.mu.Unlock()
	switch state {
	case sessionLive, sessionMoves:
		ticket.Delivered()
	case sessionOver:
		if !ticket.Leave() {
			ticket.Abandon()
		}
	}
}

// checkQuiet ends a session that has been silent for long. The port's loop decides: what
// the client says comes by way of it, and so not in between.
func (s *udpSession) checkQuiet() {
	s.socket.loop.Do(s.endQuiet)
}

func (s *udpSession) endQuiet() {
	left := s.leftOf(s.idle())
	s.mu.Lock()
	s.noteCutShort()
	state, ticket := s.state.Load(), s.ticket
	if left > 0 && state != sessionOver {
		s.quiet.Reset(left)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	switch {
	case state == sessionLive:
		s.over(string(forward.ByTimeout))
	case state == sessionHeld && ticket.Leave():
		s.over(accesslog.GaveUp)
	}
}

// leftOf is how much of a time of silence is left at most.
func (s *udpSession) leftOf(silence time.Duration) time.Duration {
	client, _ := s.clientAt.last()
	server, _ := s.serverAt.last()
	if server.After(client) {
		client = server
	}
	return silence + momentStep - time.Since(client)
}

// connect opens the session's socket to a server, unless it has one already.
func (s *udpSession) connect(address netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Load() != sessionHeld {
		return net.ErrClosed
	}
	if s.upstream != nil && s.server == address && !s.lost {
		return nil
	}
	// It may have been granted just before it was lost.
	p := s.port
	if now, ok := p.service.route.Load().Port(p.key.name); ok && !now.Has(address) {
		return fmt.Errorf("%s: %w", address, errLost)
	}
	s.disconnect()
	upstream, from, err := conn.DialUDP(address)
	if err != nil {
		return err
	}
	s.upstream, s.from = upstream, from
	_ = upstream.SetReadBuffer(conn.ReceiveBytes)
	if s.writer, err = conn.NewWriter(upstream); err != nil {
		s.disconnect()
		return err
	}
	s.server, s.lost, s.unsent = address, false, false
	s.answered.Store(false)
	return nil
}

// disconnect closes the session's socket while no loop has it. The session is locked.
func (s *udpSession) disconnect() {
	if s.upstream != nil {
		_ = s.upstream.Close()
		s.upstream = nil
		s.from.Free()
	}
}

// Granted implements hold.Client.
func (s *udpSession) Granted(g hold.Grant) { s.start(g) }

// Refused implements hold.Client.
func (s *udpSession) Refused(reason proto.Reason) {
	var first []byte
	s.mu.Lock()
	if len(s.queue) > 0 {
		// What is kept is never written again.
		first, _ = nextHeld(s.queue)
	}
	s.mu.Unlock()
	s.line.Refused(string(reason))
	s.socket.refuse(s, reason, first)
	s.over("")
}

// over ends a session, whoever finds first that it has ended, and says why: as ends are
// counted, or nothing where that is done elsewhere.
func (s *udpSession) over(why string) {
	s.mu.Lock()
	s.overLocked(why)
}

// overLocked is over for who has the lock, which it releases.
func (s *udpSession) overLocked(why string) {
	s.noteCutShort()
	was := s.state.Swap(sessionOver)
	if s.upstream != nil {
		_ = s.upstream.Close()
		s.from.Free()
	}
	if s.quiet != nil {
		s.quiet.Stop()
	}
	s.budget().Give(len(s.queue) + len(s.sent))
	s.queue, s.sent = nil, nil
	s.visit.Leave()
	adopted := s.taken
	s.mu.Unlock()
	switch {
	case was == sessionOver:
		return
	case why != "":
		s.port.leaves(s.line, why)
	}
	if adopted {
		s.loop.Do(s.end)
		return
	}
	s.socket.forget(s)
}
