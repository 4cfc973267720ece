package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// refusalTime is how long a server's host has to say that a datagram met no
	// bound port.
	refusalTime = 20 * time.Millisecond
	// lengthBytes precede each held datagram.
	lengthBytes = 4
)

// A session is held, then live, then over. Only live is read without its lock.
const (
	sessionHeld int32 = iota
	sessionLive
	sessionOver
)

// udpSession is one client of a UDP port: what it sent while it had no server,
// and the socket of its own with which the server knows it apart from others.
type udpSession struct {
	socket *udpSocket
	client netip.AddrPort
	// source makes replies come from the address that the client sent to.
	source []byte
	max    int

	state atomic.Int32
	// last is when a datagram came, either way, in nanoseconds.
	last atomic.Int64

	mu sync.Mutex
	// queue is what is held: each datagram with its length before it.
	queue  []byte
	ticket *hold.Ticket
	quiet  *time.Timer
	// server is the address that upstream is connected to.
	server   netip.AddrPort
	upstream *net.UDPConn
}

var _ hold.Datagrams = (*udpSession)(nil)

// fromClient takes a datagram of the client; false: the session is over, and the
// datagram is the first of another.
func (s *udpSession) fromClient(datagram []byte) bool {
	s.touch()
	if s.state.Load() == sessionLive {
		s.send(datagram)
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state.Load() {
	case sessionLive:
		s.send(datagram)
	case sessionHeld:
		// The first is kept whatever its size: it is what wakes the server.
		if len(s.queue) > 0 && len(s.queue)+lengthBytes+len(datagram) > s.max {
			s.socket.port.counts.DatagramDropped()
			return true
		}
		s.queue = binary.NativeEndian.AppendUint32(s.queue, uint32(len(datagram))) //nolint:gosec // a datagram's size
		s.queue = append(s.queue, datagram...)
	default:
		return false
	}
	return true
}

// touch notes that the client or the server said something.
func (s *udpSession) touch() {
	now := time.Now()
	s.last.Store(now.UnixNano())
	s.socket.port.service.active.touch(now)
}

// nextHeld cuts the first datagram off what is held.
func nextHeld(queue []byte) (datagram, rest []byte) {
	n := binary.NativeEndian.Uint32(queue)
	return queue[lengthBytes : lengthBytes+n], queue[lengthBytes+n:]
}

// send gives the server a datagram.
func (s *udpSession) send(datagram []byte) {
	counts := s.socket.port.counts
	_, err := s.upstream.Write(datagram)
	if errors.Is(err, syscall.ECONNREFUSED) {
		// That is the fate of an earlier datagram; this one was not sent.
		counts.DatagramRefused()
		_, err = s.upstream.Write(datagram)
	}
	if err == nil {
		counts.DatagramToServer(len(datagram))
	}
}

// reply gives the client a datagram.
func (s *udpSession) reply(datagram []byte) {
	s.touch()
	if s.socket.packets.Send(datagram, s.source, s.client) == nil {
		s.socket.port.counts.DatagramToClient(len(datagram))
	}
}

// held keeps the ticket, and lets go of a client that is silent for long. The
// session may have had its server, or its end, before it got here.
func (s *udpSession) held(ticket *hold.Ticket) {
	s.mu.Lock()
	s.ticket = ticket
	state := s.state.Load()
	if state == sessionHeld {
		s.quiet = time.AfterFunc(s.socket.port.service.server.opts.UDPIdle, s.checkQuiet)
	}
	s.mu.Unlock()
	switch state {
	case sessionLive:
		ticket.Delivered()
	case sessionOver:
		ticket.Abandon()
	}
}

func (s *udpSession) checkQuiet() {
	left := s.leftOf(s.socket.port.service.server.opts.UDPIdle)
	s.mu.Lock()
	if s.state.Load() != sessionHeld {
		s.mu.Unlock()
		return
	}
	if left > 0 {
		s.quiet.Reset(left)
		s.mu.Unlock()
		return
	}
	ticket := s.ticket
	s.mu.Unlock()
	if ticket.Leave() {
		s.over()
	}
}

// leftOf is how much of a time of silence is left.
func (s *udpSession) leftOf(silence time.Duration) time.Duration {
	return silence - time.Since(time.Unix(0, s.last.Load()))
}

// connect opens the session's socket to a server, unless it has one already.
func (s *udpSession) connect(address netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Load() != sessionHeld {
		return net.ErrClosed
	}
	if s.upstream != nil && s.server == address {
		return nil
	}
	if s.upstream != nil {
		_ = s.upstream.Close()
		s.upstream = nil
	}
	upstream, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(address))
	if err != nil {
		return fmt.Errorf("opening a socket to %s: %w", address, err)
	}
	s.upstream, s.server = upstream, address
	return nil
}

// Probe implements hold.Datagrams: the client's own first datagram, from its own
// socket, finds out whether the server's port is bound.
func (s *udpSession) Probe(_ context.Context, address netip.AddrPort) hold.Probed {
	if s.connect(address) != nil {
		return hold.Failed
	}
	s.mu.Lock()
	if s.state.Load() != sessionHeld || len(s.queue) == 0 {
		s.mu.Unlock()
		return hold.Failed
	}
	upstream := s.upstream
	first, _ := nextHeld(s.queue)
	s.mu.Unlock()

	_ = upstream.SetReadDeadline(time.Now().Add(refusalTime))
	buf := conn.Datagrams.Get()
	defer conn.Datagrams.Put(buf)
	_, err := upstream.Write(first)
	var n int
	if err == nil {
		n, err = upstream.Read(*buf)
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		s.socket.port.counts.DatagramRefused()
		return hold.NotBound
	case err == nil:
		s.reply((*buf)[:n])
	case errors.Is(err, os.ErrDeadlineExceeded):
		// Nobody said no.
	default:
		return hold.Failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.socket.port.counts.DatagramToServer(len(first))
	// The session may have ended meanwhile, and what it held with it.
	if s.state.Load() == sessionHeld {
		_, s.queue = nextHeld(s.queue)
	}
	return hold.Taken
}

// Granted implements hold.Client.
func (s *udpSession) Granted(g hold.Grant) { s.start(g.Address) }

// Refused implements hold.Client.
func (s *udpSession) Refused(reason proto.Reason) {
	s.socket.refuse(s, reason)
	s.over()
}

// over ends a session, whoever finds first that it has ended.
func (s *udpSession) over() {
	s.mu.Lock()
	was := s.state.Swap(sessionOver)
	if s.upstream != nil {
		_ = s.upstream.Close()
	}
	if s.quiet != nil {
		s.quiet.Stop()
	}
	s.queue = nil
	s.mu.Unlock()
	if was != sessionOver {
		s.socket.forget(s)
	}
}

// start relays the session in a goroutine of its own.
func (s *udpSession) start(address netip.AddrPort) {
	server := s.socket.port.service.server
	server.wg.Go(func() { s.run(address) })
}

// run delivers what is held and then the server's replies until the session has
// been silent for long.
func (s *udpSession) run(address netip.AddrPort) {
	p := s.socket.port
	if err := s.connect(address); err != nil {
		s.giveBack(address)
		return
	}
	reader, err := conn.NewDatagramReader(s.upstream)
	if err != nil {
		s.over()
		return
	}
	p.begin()
	defer p.end()
	s.flush()
	defer s.over()
	defer context.AfterFunc(p.service.server.ctx, s.over)()

	idle := p.service.server.opts.UDPIdle
	for {
		left := s.leftOf(idle)
		if left <= 0 {
			return
		}
		_ = s.upstream.SetReadDeadline(time.Now().Add(left))
		for {
			datagram, err := reader.Next(conn.MaxDatagram)
			if errors.Is(err, syscall.ECONNREFUSED) {
				// The server is not there just now, which is not the end: it may
				// be restarting.
				p.counts.DatagramRefused()
				continue
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return
			}
			s.reply(datagram)
			reader.Done()
		}
	}
}

// flush delivers what is held in order and makes the session live: from then on
// the client's datagrams go to the server as they come.
func (s *udpSession) flush() {
	p := s.socket.port
	p.pace.turn.Lock()
	defer p.pace.turn.Unlock()
	for {
		s.mu.Lock()
		queue := s.queue
		s.queue = nil
		if len(queue) == 0 {
			s.state.CompareAndSwap(sessionHeld, sessionLive)
			ticket := s.ticket
			if s.quiet != nil {
				s.quiet.Stop()
			}
			s.mu.Unlock()
			if ticket != nil {
				ticket.Delivered()
			}
			return
		}
		s.mu.Unlock()
		var datagram []byte
		for len(queue) > 0 && s.state.Load() != sessionOver {
			datagram, queue = nextHeld(queue)
			p.pace.wait(p.service.server.ctx)
			s.send(datagram)
		}
	}
}

// giveBack returns a grant that came to nothing.
func (s *udpSession) giveBack(address netip.AddrPort) {
	s.mu.Lock()
	ticket, over := s.ticket, s.state.Load() == sessionOver
	s.mu.Unlock()
	switch {
	case ticket == nil:
		s.over()
	case over:
		ticket.Abandon()
	default:
		ticket.Back(address)
	}
}
