package traffic

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// bulk reads or writes as fast as it can.
type bulk struct {
	Job
	poller *poller
	up     bool
}

func (b *bulk) prepare() error {
	for range b.Count {
		fd, err := connected(unix.SOCK_STREAM, b.Port)
		if err != nil {
			return err
		}
		events := uint32(unix.EPOLLIN)
		if b.up {
			events = unix.EPOLLOUT
		}
		if err := b.poller.add(fd, events); err != nil {
			return err
		}
	}
	return nil
}

func (b *bulk) play() (Outcome, error) {
	buffer := make([]byte, bulkBytes)
	move := unix.Read
	if b.up {
		move = unix.Write
	}
	began := time.Now()
	deadline := began.Add(b.Duration)
	var done int64
	for time.Now().Before(deadline) {
		events, err := b.poller.wait(time.Until(deadline) + time.Millisecond)
		if err != nil {
			return Outcome{}, err
		}
		for i := range events {
			n, err := move(int(events[i].Fd), buffer)
			if err != nil && !again(err) || err == nil && n == 0 {
				return Outcome{}, fmt.Errorf("a bulk connection to port %d ended: %w", b.Port, err)
			}
			done += int64(max(n, 0))
		}
	}
	return Outcome{Done: done, Seconds: time.Since(began).Seconds()}, nil
}

// pings sends small messages that come back: the next one once the last is back, or
// at a rate. Times of a paced one are from when it was due.
type pings struct {
	Job
	poller *poller
	buffer [4096]byte
	conns  []int
	// byFD are the connections by their descriptor.
	byFD [MaxFiles]ping
	// due and next are of paced ones.
	due  time.Time
	next int
}

// ping is one connection: when its pings that are on their way began, and what has
// come of the first.
type ping struct {
	begun []time.Time
	got   int
}

func (p *pings) prepare() error {
	for range p.Count {
		fd, err := connected(unix.SOCK_STREAM, p.Port)
		if err != nil {
			return err
		}
		p.conns = append(p.conns, fd)
		if err := p.poller.add(fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	// The first one goes through all that happens once for a connection.
	for _, fd := range p.conns {
		if err := p.send(fd, time.Now()); err != nil {
			return err
		}
	}
	back, deadline := 0, time.Now().Add(patience)
	for back < len(p.conns) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d connections to port %d are answered", back, len(p.conns), p.Port)
		}
		err := p.receive(time.Second, func(int, time.Duration) error { back++; return nil })
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pings) send(fd int, at time.Time) error {
	if n, err := unix.Write(fd, p.buffer[:pingBytes]); n < pingBytes {
		return fmt.Errorf("send %d bytes to port %d: sent %d: %w", pingBytes, p.Port, n, err)
	}
	p.byFD[fd].begun = append(p.byFD[fd].begun, at)
	return nil
}

// receive waits once, and tells of each message that is back.
func (p *pings) receive(most time.Duration, back func(fd int, took time.Duration) error) error {
	events, err := p.poller.wait(most)
	if err != nil {
		return err
	}
	for i := range events {
		fd := int(events[i].Fd)
		c := &p.byFD[fd]
		if c.begun == nil {
			// The timer, which may be read once a step.
			_, _ = unix.Read(fd, p.buffer[:8])
			continue
		}
		n, err := unix.Read(fd, p.buffer[:])
		if again(err) {
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("a connection to port %d ended: %w", p.Port, err)
		}
		now := time.Now()
		for c.got += n; c.got >= pingBytes; c.got -= pingBytes {
			at := c.begun[0]
			c.begun = append(c.begun[:0], c.begun[1:]...)
			if err := back(fd, now.Sub(at)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pings) play() (Outcome, error) {
	o := Outcome{Took: Histogram{}}
	began := time.Now()
	deadline := began.Add(p.Duration)
	if p.Rate > 0 {
		p.due = began
		// Half a millisecond is fine enough beside what is measured, and costs little.
		if err := p.poller.ticker(500 * time.Microsecond); err != nil {
			return o, err
		}
	} else {
		for _, fd := range p.conns {
			if err := p.send(fd, began); err != nil {
				return o, err
			}
		}
	}
	for now := began; now.Before(deadline); now = time.Now() {
		if err := p.sendDue(now); err != nil {
			return o, err
		}
		err := p.receive(time.Until(deadline)+time.Millisecond, func(fd int, took time.Duration) error {
			o.Took.add(took)
			o.Done++
			if p.Rate > 0 {
				return nil
			}
			return p.send(fd, time.Now())
		})
		if err != nil {
			return o, err
		}
	}
	o.Seconds = time.Since(began).Seconds()
	return o, nil
}

func (p *pings) sendDue(now time.Time) error {
	if p.Rate == 0 {
		return nil
	}
	step := time.Duration(float64(time.Second) / p.Rate)
	for ; !p.due.After(now); p.due = p.due.Add(step) {
		if err := p.send(p.conns[p.next%len(p.conns)], p.due); err != nil {
			return err
		}
		p.next++
	}
	return nil
}

// setups connects, sends one message, waits for its echo and closes, again and
// again.
type setups struct {
	Job
	poller *poller
	buffer [pingBytes]byte
}

func (s *setups) prepare() error { return nil }

func (s *setups) play() (Outcome, error) {
	var o Outcome
	began := time.Now()
	deadline := began.Add(s.Duration)
	for range s.Count {
		if err := s.begin(); err != nil {
			return o, err
		}
	}
	for now := began; now.Before(deadline); now = time.Now() {
		events, err := s.poller.wait(time.Until(deadline) + time.Millisecond)
		if err != nil {
			return o, err
		}
		for i := range events {
			fd := int(events[i].Fd)
			over, ok := s.step(fd, events[i].Events)
			if !over {
				continue
			}
			if ok {
				o.Done++
			} else {
				o.Lost++
			}
			_ = unix.Close(fd)
			if err := s.begin(); err != nil {
				return o, err
			}
		}
	}
	o.Seconds = time.Since(began).Seconds()
	return o, nil
}

func (s *setups) begin() error {
	const kind = unix.SOCK_STREAM
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	if err := unix.Connect(fd, loopback(s.Port)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("connect to port %d: %w", s.Port, err)
	}
	return s.poller.add(fd, unix.EPOLLOUT)
}

// step goes on with a connection: it is connected, or answered.
func (s *setups) step(fd int, events uint32) (over, ok bool) {
	if events&unix.EPOLLOUT != 0 {
		if n, err := unix.Write(fd, s.buffer[:]); err != nil || n < len(s.buffer) {
			return true, false
		}
		return s.poller.change(fd, unix.EPOLLIN) != nil, false
	}
	n, err := unix.Read(fd, s.buffer[:])
	if again(err) {
		return false, false
	}
	return true, n == len(s.buffer)
}
