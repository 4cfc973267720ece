package player

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"dormouse.dev/dormouse/test/gamewire"
)

// receive reads replies until the session ends.
func (p *Player) receive() {
	defer close(p.done)
	for {
		frame, err := p.framer.read()
		now := time.Now()
		p.mu.Lock()
		if err != nil && p.framer.transient(err) {
			p.stats.Refused++
			p.notify()
			p.mu.Unlock()
			continue
		}
		if err != nil {
			p.fail(err)
			p.notify()
			p.mu.Unlock()
			// A socket that was reset or ended is of no use to the sender either.
			_ = p.conn.Close()
			return
		}
		p.take(frame, now)
		p.notify()
		p.mu.Unlock()
	}
}

// take counts one reply; the caller holds mu.
func (p *Player) take(frame []byte, now time.Time) {
	s := &p.stats
	s.Received++
	s.BytesReceived += uint64(len(frame)) + p.framer.overhead()
	reply, err := gamewire.ParseReply(frame)
	if err != nil {
		s.Corrupt++
		return
	}
	asked, waiting := p.pending[reply.Number]
	switch {
	case reply.Number == 0 || reply.Number > s.Sent:
		s.Corrupt++
		return
	case !waiting:
		s.Duplicated++
		return
	case asked.payload != reply.Payload:
		s.Corrupt++
		return
	}
	delete(p.pending, reply.Number)
	asked.reply = &reply
	if reply.Number < s.highest {
		s.Reordered++
	}
	s.highest = max(s.highest, reply.Number)
	if s.FirstReply.IsZero() {
		s.FirstReply = now
		s.First = reply
	}
	s.Last = reply
	s.ServerMessages = max(s.ServerMessages, reply.Messages)
	s.ServerBytes = max(s.ServerBytes, reply.Bytes)
	s.addPath(Path{Server: reply.Server, Boot: reply.Boot, Peer: reply.Peer})
	s.Slowest = max(s.Slowest, now.Sub(asked.sent))
}

// fail notes why the session ended, the first reason only; the caller holds mu.
func (p *Player) fail(err error) {
	if p.closing || p.stats.Err != nil {
		return
	}
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		p.stats.Resets++
	case errors.Is(err, syscall.ECONNREFUSED):
		p.stats.Refused++
	case errors.Is(err, io.EOF):
		p.stats.Ends++
	case errors.Is(err, net.ErrClosed):
		return
	}
	p.stats.Err = err
}
