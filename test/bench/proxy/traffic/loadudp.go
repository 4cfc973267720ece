package traffic

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lostAfter is when an echo that isn't back counts as lost, and how often it is
	// looked for that.
	lostAfter = 200 * time.Millisecond
	lostLook  = 50 * time.Millisecond
)

// echoes sends datagrams that come back, each flow from a socket of its own: the
// next one once the last is back or lost, or at a rate.
type echoes struct {
	Job
	poller *poller
	buffer [2048]byte
	flows  []flow
	// byFD is one more than a flow's index, by its descriptor.
	byFD [MaxFiles]int
}

// flow is one client: the datagram that it sent last, and whether it is back.
type flow struct {
	fd   int
	last uint64
	at   time.Time
	back bool
}

func (e *echoes) prepare() error {
	for i := range e.Count {
		fd, err := connected(unix.SOCK_DGRAM, e.Port)
		if err != nil {
			return err
		}
		if err := e.poller.add(fd, unix.EPOLLIN); err != nil {
			return err
		}
		e.flows = append(e.flows, flow{fd: fd})
		e.byFD[fd] = i + 1
	}
	// A flow's first datagram makes the proxy open a session. A few at a time: how
	// many it bears at once is not the question here.
	const together = 50
	for from := 0; from < len(e.flows); from += together {
		if err := e.open(e.flows[from:min(from+together, len(e.flows))]); err != nil {
			return err
		}
	}
	return nil
}

func (e *echoes) open(flows []flow) error {
	for deadline := time.Now().Add(patience); ; {
		waiting := 0
		for i := range flows {
			if !flows[i].back {
				waiting++
				e.send(&flows[i], time.Now())
			}
		}
		if waiting == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d UDP flows to port %d are not answered", waiting, e.Port)
		}
		for again := time.Now().Add(lostAfter); waiting > 0 && time.Now().Before(again); {
			if err := e.receive(func(*flow, time.Time) { waiting-- }); err != nil {
				return err
			}
		}
	}
}

// send sends a flow's next datagram. What the kernel doesn't take is lost.
func (e *echoes) send(f *flow, now time.Time) {
	f.last++
	f.at, f.back = now, false
	binary.NativeEndian.PutUint64(e.buffer[:], f.last)
	_, _ = writeNow(f.fd, e.buffer[:echoBytes])
}

// receive waits once, for lostLook at most, and tells of each flow whose last datagram is back. In a paced
// job an earlier one counts too.
func (e *echoes) receive(back func(*flow, time.Time)) error {
	events, err := e.poller.wait(lostLook)
	if err != nil {
		return err
	}
	now := time.Now()
	for i := range events {
		fd := int(events[i].Fd)
		index := e.byFD[fd]
		n, err := readNow(fd, e.buffer[:])
		if index == 0 || err != nil || n != echoBytes {
			continue // the timer, or what the network says of an earlier datagram
		}
		f := &e.flows[index-1]
		if is := binary.NativeEndian.Uint64(e.buffer[:]); is == f.last || e.Rate > 0 {
			f.back = is == f.last
			back(f, now)
		}
	}
	return nil
}

func (e *echoes) play() (Outcome, error) {
	if e.Rate > 0 {
		return e.paced()
	}
	var o Outcome
	began := time.Now()
	for i := range e.flows {
		e.send(&e.flows[i], began)
	}
	deadline, look := began.Add(e.Duration), began.Add(lostAfter)
	for now := began; now.Before(deadline); now = time.Now() {
		err := e.receive(func(f *flow, now time.Time) {
			o.Done++
			e.send(f, now)
		})
		if err != nil {
			return o, err
		}
		if now.Before(look) {
			continue
		}
		look = now.Add(lostLook)
		for i := range e.flows {
			if now.Sub(e.flows[i].at) > lostAfter {
				o.Lost++
				e.send(&e.flows[i], now)
			}
		}
	}
	o.Seconds = time.Since(began).Seconds()
	return o, nil
}

func (e *echoes) paced() (Outcome, error) {
	var o Outcome
	if err := e.poller.ticker(250 * time.Microsecond); err != nil {
		return o, err
	}
	began := time.Now()
	deadline := began.Add(e.Duration)
	due, step, sent := began, time.Duration(float64(time.Second)/e.Rate), 0
	count := func(*flow, time.Time) { o.Done++ }
	for now := began; now.Before(deadline); now = time.Now() {
		for ; !due.After(now); due = due.Add(step) {
			e.send(&e.flows[sent%len(e.flows)], now)
			sent++
		}
		if err := e.receive(count); err != nil {
			return o, err
		}
	}
	o.Seconds = time.Since(began).Seconds()
	for end := time.Now().Add(2 * lostAfter); int(o.Done) < sent && time.Now().Before(end); {
		if err := e.receive(count); err != nil {
			return o, err
		}
	}
	o.Lost = int64(sent) - o.Done
	return o, nil
}
