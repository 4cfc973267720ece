package udp

import (
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"

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
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/relay"
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

// session is one client of a UDP port: what it sent while it had no server,
// and the socket of its own with which the server knows it apart from others.
type session struct {
	// What is used for each datagram is together, and seldom written. Once the loops have
	// the session its socket is fd, to which the port's loop sends, and from which its own
	// receives by way of file.
	socket *socket
	state  atomic.Int32
	// port is the one that the client came to: the socket may be another's by now.
	port    *Port
	adopted bool
	// query reports whether the client only asked, which keeps nothing awake.
	query bool
	// refused reports whether the server refused a datagram, answered that it sent one.
	refused, answered atomic.Bool
	// proven reports whether the client spoke again after it was answered.
	proven atomic.Bool
	fd     int
	// line is the client's in the access log, if there is one.
	line *accesslog.Line
	// clientAt and serverAt are when each last sent a datagram.
	clientAt, serverAt service.Moment
	loop               *udpLoop
	file               loop.File
	// replier is for whoever passes on what the server sends, and writer for whoever
	// sends to it, of whom there is one at a time.
	replier conn.Replier
	writer  *conn.Writer

	client netip.AddrPort
	// evicted reports whether it made room, and gone that its place is given back. The
	// service's strangers guard both.
	evicted, gone bool
	// source makes replies come from the address that the client sent to.
	source []byte
	max    int
	// kept bounds what is kept of the client.
	kept *conn.Budget
	// slot is the session's place on its server.
	slot *hold.Slot

	mu   sync.Mutex
	stay guard.Stay
	// queue is what is held: each datagram with its length before it. Sent is
	// what of it a server was given that has not answered so far, for a service.Moment.
	// Both are charged to the budget.
	queue  []byte
	sent   []byte
	ticket *hold.Ticket
	quiet  *time.Timer
	// server is the address that upstream is connected to.
	server netip.AddrPort
	// lost reports whether the address became nobody's, or another's, before the
	// session was live.
	lost bool
	// unsent reports whether sent was kept for another server, because this one was lost
	// before it was sent.
	unsent   bool
	upstream *net.UDPConn
	// from is the port of the socket, upstream or fd.
	from conn.SourcePort
	// taken reports whether the loops have the session.
	taken bool
	// moved reports whether the line is another session's, which is the client's now.
	moved bool
	// cutShort reports whether its end in the middle of the game was counted.
	cutShort bool
}

var _ hold.Datagrams = (*session)(nil)

// fromClient takes a datagram of the client; false: the session is over, and the
// datagram is the first of another.
func (s *session) fromClient(datagram []byte, now time.Time) bool {
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
			s.port.Counts.DatagramDropped()
			return true
		}
		s.keep(datagram)
	default:
		return false
	}
	return true
}

// lose ends a live session whose server is among those that were lost. What that took
// a service.Moment ago and did not answer is the next server's.
func (s *session) lose(lost map[netip.AddrPort]bool) {
	s.mu.Lock()
	is := (s.upstream != nil || s.taken) && lost[s.server]
	s.lost = s.lost || is
	// One that is not live yet looks itself.
	ends := is && s.state.Load() == sessionLive
	s.mu.Unlock()
	switch {
	case !ends:
	case s.answered.Load() || s.query:
		s.over(string(relay.ByServer))
	default:
		s.retry()
		s.socket.loop.Do(s.move)
	}
}

func (s *session) budget() *conn.Budget { return s.kept }

// keep adds a datagram, which has been charged, to what is held.
func (s *session) keep(datagram []byte) {
	s.queue = binary.NativeEndian.AppendUint32(s.queue, uint32(len(datagram))) //nolint:gosec // a datagram's size
	s.queue = append(s.queue, datagram...)
}

// begin takes the first datagram and finds the session its server or its place in
// the queue.
func (s *session) begin(datagram []byte) {
	p := s.port
	release, ok := p.Queue.Pick(p.Key.Name)
	if !ok && !s.mayWait() {
		return
	}
	if !ok && p.Queue.Len() >= p.Route().Hold.MaxConnections {
		// A flood is not even kept to be refused.
		p.Counts.Refused(string(proto.QueueFull))
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
		p.Counts.DatagramDropped()
		p.Counts.Refused(string(proto.TooManyBytes))
		s.Refused(proto.TooManyBytes)
		return
	}
	p.Counts.ClientTaken()
	s.mu.Lock()
	s.keep(datagram)
	s.mu.Unlock()
	s.place(release, ok)
}

// place sends the session to a server that was picked or, if none was, to the
// queue.
func (s *session) place(release hold.Release, picked bool) {
	p := s.port
	if picked {
		s.start(release)
		return
	}
	if !s.mayWait() {
		return
	}
	ticket, err := p.Queue.Enter(p.Key.Name, s, p.Protocol.HoldAtMost())
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

// mayWait reports whether the client may wake the service or wait for it. One that may not is
// refused.
func (s *session) mayWait() bool {
	s.mu.Lock()
	reason := s.stay.Ask(time.Now())
	s.mu.Unlock()
	if reason == "" {
		return true
	}
	s.port.Counts.Refused(string(reason))
	s.Refused(reason)
	return false
}

// touch notes that the client or the server, whose service.Moment it is, said something. It
// keeps the service awake once the client has proven to be one.
func (s *session) touch(at *service.Moment, now time.Time) {
	at.Note(now)
	if !s.query && s.proven.Load() {
		s.port.Active.Touch(now)
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
func (s *session) send(datagram []byte, write func(datagram []byte) error) (sent bool) {
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
func (s *session) lostOne(err error) {
	if refusal(err) {
		s.port.Counts.DatagramRefused()
		s.refused.Store(true)
	} else {
		s.port.Counts.UnsentToServer()
	}
}

// refusal reports whether nothing is bound to the server's port.
func refusal(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// write is for the goroutine that delivers what was held.
func (s *session) write(datagram []byte) error {
	_, err := s.writer.Write(datagram)
	return err
}

// writeNow is for the port's loop, which waits for nobody: where there is no room a
// datagram is lost, as on a line that is full.
func (s *session) writeNow(datagram []byte) error {
	if !s.adopted {
		return s.writer.WriteNow(datagram)
	}
	if _, errno := conn.SendNow(s.fd, datagram); errno != 0 {
		return errno
	}
	return nil
}

// relay gives the server a datagram that came while the session is live.
func (s *session) relay(datagram []byte) {
	if !s.send(datagram, s.writeNow) {
		return
	}
	switch {
	case s.port == s.socket.port.Load():
		s.socket.sent++
		s.socket.sentBytes += len(datagram)
	default:
		s.port.Counts.DatagramsToServer(1, len(datagram))
	}
}

// reply gives the client a datagram. It is for the goroutine that waits for them.
func (s *session) reply(datagram []byte) {
	s.heard(time.Now())
	s.line.Carried(0, int64(len(datagram)))
	s.replied(datagram, s.replier.Send(datagram))
}

// heard notes that the server said something.
func (s *session) heard(now time.Time) {
	s.touch(&s.serverAt, now)
	if !s.answered.Load() {
		s.answered.Store(true)
	}
	s.port.pace.answered()
}

func (s *session) replied(datagram []byte, err error) {
	if err != nil {
		s.port.Counts.UnsentToClient(1)
		return
	}
	s.port.Counts.DatagramsToClient(1, len(datagram))
}

// idle is how long the session may be silent.
func (s *session) idle() time.Duration {
	idle := s.port.UDPIdle
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
func (s *session) held(ticket *hold.Ticket) {
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
func (s *session) checkQuiet() {
	s.socket.loop.Do(s.endQuiet)
}

func (s *session) endQuiet() {
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
		s.over(string(relay.ByTimeout))
	case state == sessionHeld && ticket.Leave():
		s.over(accesslog.GaveUp)
	}
}

// leftOf is how much of a time of silence is left at most.
func (s *session) leftOf(silence time.Duration) time.Duration {
	client, _ := s.clientAt.Last()
	server, _ := s.serverAt.Last()
	if server.After(client) {
		client = server
	}
	return silence + service.MomentStep - time.Since(client)
}

// connect opens the session's socket to a server, unless it has one already.
func (s *session) connect(address netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Load() != sessionHeld {
		return net.ErrClosed
	}
	if s.upstream != nil && s.server == address && !s.lost {
		return nil
	}
	// It may have been released to it just before that was lost.
	p := s.port
	if now, ok := p.Route().Port(p.Key.Name); ok && !now.Has(address) {
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
func (s *session) disconnect() {
	if s.upstream != nil {
		_ = s.upstream.Close()
		s.upstream = nil
		s.from.Free()
	}
}

// Released implements hold.Client.
func (s *session) Released(g hold.Release) { s.start(g) }

// Refused implements hold.Client.
func (s *session) Refused(reason proto.Reason) {
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
func (s *session) over(why string) {
	s.mu.Lock()
	s.overLocked(why)
}

// overLocked is over for who has the lock, which it releases.
func (s *session) overLocked(why string) {
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
	s.stay.Leave()
	adopted := s.taken
	s.mu.Unlock()
	switch {
	case was == sessionOver:
		return
	case why != "":
		s.port.Ended(s.line, why)
	}
	if adopted {
		s.loop.Do(s.end)
		return
	}
	s.socket.forget(s)
}
