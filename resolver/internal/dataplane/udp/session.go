package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/relay"
)

const (
	// lengthBytes precede each held datagram.
	lengthBytes = 4
	// unansweredIdle is how long a live session may be silent whose backend never sent
	// anything.
	unansweredIdle = 30 * time.Second
)

var errLost = errors.New("the server is not one of the service's any more")

// A session is held, then live, then over. Only live is read without the session's lock. A
// session that moves has lost its backend before that answered. What its client sends is kept
// until the port's loop has begun the session that takes its place.
const (
	sessionHeld int32 = iota
	sessionLive
	sessionMoves
	sessionOver
)

// session is one client of a UDP port: what it sent while it had no backend, and a socket of
// its own by which the backend tells it apart from other clients.
type session struct {
	// The fields used for each datagram are together, and seldom written. Once the loops have
	// the session its socket is file's: the port's loop sends to it, and the session's loop
	// receives from it.
	socket *socket
	state  atomic.Int32
	// max is how many bytes are held.
	max int32
	// port is the port that the client came to: the socket may be another port's by now.
	port    *Port
	adopted bool
	// query is set while the client only queries, which keeps nothing awake.
	query bool
	// parts counts what must end before the session's place is given back: its entry among the
	// socket's sessions, and what relays it. The session's lock guards it.
	parts int8
	// refused is set once the backend refused a datagram, and answered once it sent one.
	refused, answered atomic.Bool
	// validated is set once the client sent something after it was answered.
	validated atomic.Bool
	// line is the client's line in the access log; nil: there is none.
	line *accesslog.Line
	// clientAt and serverAt are when each last sent a datagram.
	clientAt, serverAt service.LastSeen
	loop               *udpLoop
	file               loop.File
	// replier sends to the client from the address that the client sent to.
	replier conn.Replier
	// writer is for the goroutine or loop that sends to the backend, one at a time, until the
	// loops have the session.
	writer *conn.Writer

	client netip.AddrPort
	// kept bounds the bytes that are kept of the client.
	kept *conn.Budget
	// slot is the session's place on its backend.
	slot *hold.Slot

	mu   sync.Mutex
	stay guard.Stay
	// queue is what is held: each datagram with its length before it. Sent is the part of it
	// that a backend was sent and has not answered; it is kept for unansweredTime. Both are
	// charged to the budget.
	queue  []byte
	sent   []byte
	ticket *hold.Ticket
	// back is the backend that a released session could not reach before it had its ticket.
	back      *netip.AddrPort
	idleTimer *time.Timer
	upstream  *net.UDPConn
	// from is the source port of the socket, upstream or the file's, and knows its backend.
	from conn.SourcePort
	// lost is set where the backend's address went to another pod, or to none, before the
	// session was live.
	lost bool
	// unsent is set where sent was kept for another backend, because this one was lost first.
	unsent bool
	// taken is set once the loops have the session.
	taken bool
	// queued is set once the session has a place in the queue, though its ticket may be about to come.
	queued bool
	// moved is set once the line belongs to the session that took this one's place.
	moved bool
	// cutShort is set once its end in the middle of the game was counted.
	cutShort bool
	// evicted is set once the session made room, and gone once its place is given back. The
	// lock of the service's strangers guards them and the next four.
	evicted, gone bool
	// stranger is set while it is one of them, and older and newer are its neighbours there.
	stranger     bool
	older, newer *session
	// counted is where the service's Activity counts it; nil: nowhere.
	counted *atomic.Int32
}

var _ hold.Datagrams = (*session)(nil)

// lose ends a live session whose backend was lost. What that backend was
// sent lately and did not answer goes to the next backend.
func (s *session) lose(lost func(netip.AddrPort) bool) {
	s.mu.Lock()
	is := (s.upstream != nil || s.taken) && lost(s.from.Server())
	s.lost = s.lost || is
	// A session that is not live yet finds out itself.
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

// partEnded gives back the session's place once all its parts have ended. Places given back
// earlier would let a flood begin sessions faster than others end.
func (s *session) partEnded() {
	s.mu.Lock()
	last := s.parts == 1
	s.parts = max(0, s.parts-1)
	s.mu.Unlock()
	if last {
		s.port.GiveSession()
		s.port.udp.strangers.gone(s)
	}
}

// keep adds a datagram, which has been charged, to what is held.
func (s *session) keep(datagram []byte) {
	s.queue = binary.NativeEndian.AppendUint32(s.queue, uint32(len(datagram))) //nolint:gosec // a datagram's size
	s.queue = append(s.queue, datagram...)
}

// begin takes the first datagram and finds a backend for the session, or a place in the queue.
func (s *session) begin(datagram []byte) {
	p := s.port
	release, ok := p.Queue.Pick(p.Key.PortID)
	if !ok && !s.stay.Permitted() {
		release, ok = p.Queue.PickUnasked(p.Key.PortID)
	}
	if !ok && !s.mayWait() {
		return
	}
	if !ok && p.Queue.Len() >= p.Route().Hold.MaxConnections {
		// A datagram of a flood is not even kept for its refusal.
		p.Counts.Refused(string(proto.QueueFull))
		s.line.Refused(string(proto.QueueFull))
		s.socket.refuse(s, proto.QueueFull, datagram)
		s.over("")
		return
	}
	s.touch(&s.clientAt, time.Now())
	size := lengthBytes + len(datagram)
	if ok {
		// It goes on at once: clients that are held elsewhere must not keep others from a
		// backend that is up.
		s.budget().Force(size)
	} else if !s.budget().All(size) {
		p.Counts.DatagramDropped()
		p.Counts.Refused(string(proto.TooManyBytes))
		s.refuse(proto.TooManyBytes)
		return
	}
	p.Counts.ClientTaken()
	s.mu.Lock()
	s.keep(datagram)
	s.mu.Unlock()
	s.place(release, ok)
}

// place sends the session to a backend that was picked or, if none was, to the queue.
func (s *session) place(release hold.Release, picked bool) {
	p := s.port
	if picked {
		s.start(release)
		return
	}
	if !s.mayWait() {
		return
	}
	s.mu.Lock()
	s.queued = true
	s.mu.Unlock()
	ticket, err := p.Queue.Hold(p.Key.PortID, s, p.Protocol.HoldAtMost())
	if err != nil {
		reason := proto.QueueFull
		if errors.Is(err, hold.ErrGone) {
			reason = proto.RouteGone
		}
		s.refuse(reason)
		return
	}
	s.held(ticket)
}

// mayWait reports whether the client may wake the service or wait for it. One that may not is
// refused.
func (s *session) mayWait() bool {
	s.mu.Lock()
	now := time.Now()
	reason := s.stay.Ask(now, s.port.Policy().Rules.Refuses(now))
	s.mu.Unlock()
	if reason == "" {
		return true
	}
	s.port.Counts.Refused(string(reason))
	s.refuse(reason)
	return false
}

// touch notes that the client or the backend sent something, in at. It keeps the service awake
// once the address of the client is validated.
func (s *session) touch(at *service.LastSeen, now time.Time) {
	at.Note(now)
	if !s.query && s.validated.Load() {
		s.port.Active.Heard.Note(now)
	}
}

// nextHeld cuts the first datagram off what is held.
func nextHeld(queue []byte) (datagram, rest []byte) {
	n := binary.NativeEndian.Uint32(queue)
	return queue[lengthBytes : lengthBytes+n], queue[lengthBytes+n:]
}

// reply sends the client a datagram. It is for the goroutine that waits for the backend's.
func (s *session) reply(datagram []byte) {
	s.heard(time.Now())
	s.line.AddBytes(0, int64(len(datagram)))
	s.replied(datagram, s.replier.Send(datagram))
}

// heard notes that the backend sent something.
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

// held keeps the ticket, and ends the session if its client is silent for long. The session may
// have got its backend, have lost it again, or have ended, before it gets here.
func (s *session) held(ticket *hold.Ticket) {
	s.mu.Lock()
	s.ticket = ticket
	back := s.back
	s.back = nil
	state := s.state.Load()
	if state == sessionHeld {
		s.idleTimer = time.AfterFunc(s.idle(), s.checkIdle)
	}
	s.mu.Unlock()
	switch state {
	case sessionHeld:
		if back != nil {
			ticket.Back(*back)
		}
	case sessionLive, sessionMoves:
		ticket.Delivered()
	case sessionOver:
		if !ticket.Leave() {
			ticket.Abandon()
		}
	}
}

// checkIdle ends a session that has been silent for long. The port's loop decides: the client's
// datagrams come by way of it, so none comes in between.
func (s *session) checkIdle() {
	s.socket.loop.Do(s.endIdle)
}

func (s *session) endIdle() {
	left, why := s.left()
	s.mu.Lock()
	s.noteCutShort()
	state, ticket := s.state.Load(), s.ticket
	if left > 0 && state != sessionOver {
		s.idleTimer.Reset(left)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	switch {
	case state == sessionLive:
		s.over(string(why))
	case state == sessionHeld && ticket.Leave():
		s.over(accesslog.GaveUp)
	}
}

// left is after how long the session is to be looked at again, and why it ends where that is over. A backend that
// doesn't serve any more may be on a node that is lost. Its address is known for as long as the node is, and a client
// that goes on sending would be kept there though another backend is up.
func (s *session) left() (left time.Duration, why relay.Why) {
	left, why = s.leftOf(s.idle()), relay.ByTimeout
	if left <= 0 || s.query || s.state.Load() != sessionLive || !s.port.Route().Unserving(s.from.Server()) {
		return left, why
	}
	client, _ := s.clientAt.Last()
	server, _ := s.serverAt.Last()
	switch silent := unansweredIdle + service.LastSeenStep - time.Since(server); {
	case silent > 0:
		return min(left, silent), relay.ByServer
	case client.After(server):
		return 0, relay.ByServer
	}
	return min(left, unansweredIdle), why // neither says anything
}

// leftOf is how much is left at most of a time of silence.
func (s *session) leftOf(silence time.Duration) time.Duration {
	client, _ := s.clientAt.Last()
	server, _ := s.serverAt.Last()
	if server.After(client) {
		client = server
	}
	return silence + service.LastSeenStep - time.Since(client)
}

// connect opens the session's socket to a backend, unless it has one already.
func (s *session) connect(address netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Load() != sessionHeld {
		return net.ErrClosed
	}
	if s.upstream != nil && s.from.Server() == address && !s.lost {
		return nil
	}
	// The session may have been released to the backend just before that was lost.
	p := s.port
	if now, ok := p.Route().Port(p.Key.Name); ok && !now.Has(address) {
		return fmt.Errorf("%s: %w", address, errLost)
	}
	s.disconnect()
	if len(s.sent) > 0 {
		// What Try sent to the backend before, this one is to get.
		s.queue, s.sent = append(s.sent, s.queue...), nil
	}
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
	s.lost, s.unsent = false, false
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

// Ended implements hold.Datagrams.
func (s *session) Ended(o hold.Outcome) {
	if o.Refused != "" {
		s.refuse(o.Refused)
		return
	}
	s.start(o.Release)
}

// refuse ends a session whose client is refused, and told why.
func (s *session) refuse(reason proto.Reason) {
	var first []byte
	s.mu.Lock()
	if len(s.queue) > 0 {
		// What is kept here is never written again.
		first, _ = nextHeld(s.queue)
	}
	s.mu.Unlock()
	s.line.Refused(string(reason))
	s.socket.refuse(s, reason, first)
	s.over("")
}

// over ends a session unless it has ended already, and counts why; an empty reason is counted
// elsewhere.
func (s *session) over(why string) {
	s.mu.Lock()
	s.overLocked(why)
}

// overLocked is over for a caller that has the lock. It releases the lock.
func (s *session) overLocked(why string) {
	s.noteCutShort()
	was := s.state.Swap(sessionOver)
	if s.upstream != nil {
		_ = s.upstream.Close()
		s.from.Free()
	}
	if s.idleTimer != nil {
		s.idleTimer.Stop()
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
