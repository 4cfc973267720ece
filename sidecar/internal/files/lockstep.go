package files

import (
	"encoding/binary"
	"io"
	"sync"

	"golang.org/x/crypto/ssh"
)

// lockstep gives the SFTP server a request only once it has answered the one before. So requests
// are done in the order in which they came, which appending to a file needs and the library
// doesn't keep, and one request is in memory at a time. The client may send ahead: SSH's window
// has room for two megabytes.
type lockstep struct {
	ssh.Channel
	// moved is called with the bytes that came in and went out.
	moved func(received, sent int)

	// Each is used by one goroutine at a time: the library reads in one, and locks its writes.
	in, out packets

	answered  chan struct{}
	ended     chan struct{}
	endedOnce sync.Once
}

func newLockstep(c ssh.Channel, moved func(received, sent int)) *lockstep {
	l := &lockstep{Channel: c, moved: moved, answered: make(chan struct{}, 1), ended: make(chan struct{})}
	l.answered <- struct{}{}
	return l
}

// Read implements io.Reader. It returns bytes of one packet at most.
func (l *lockstep) Read(p []byte) (int, error) {
	if l.in.between() {
		select {
		case <-l.answered:
			l.in.begin()
		case <-l.ended:
			return 0, io.EOF
		}
	}
	n, err := l.Channel.Read(p[:min(len(p), l.in.most())])
	l.in.feed(p[:n])
	l.moved(n, 0)
	return n, err //nolint:wrapcheck // io.EOF is compared
}

// Write implements io.Writer.
func (l *lockstep) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if l.out.between() {
			l.out.begin()
		}
		n, err := l.Channel.Write(rest[:min(len(rest), l.out.most(), writeAtOnce)])
		l.out.feed(rest[:n])
		l.moved(0, n)
		if err != nil {
			// The answer is lost, and with it what Read waits for.
			l.end()
			return len(p) - len(rest) + n, err //nolint:wrapcheck // it is about the connection
		}
		if rest = rest[n:]; l.out.between() {
			select {
			case l.answered <- struct{}{}:
			default:
			}
		}
	}
	return len(p), nil
}

// Close implements io.Closer.
func (l *lockstep) Close() error {
	l.end()
	return l.Channel.Close() //nolint:wrapcheck // it is about the connection
}

func (l *lockstep) end() { l.endedOnce.Do(func() { close(l.ended) }) }

// writeAtOnce bounds what is written before it counts as moved.
const writeAtOnce = 32 << 10

// packets follows the packets of SFTP in a stream: each has its length before it, in four bytes.
type packets struct {
	begun  bool
	head   [4]byte
	headed int
	rest   uint32
}

// between reports whether no packet is under way.
func (p *packets) between() bool { return !p.begun }

func (p *packets) begin() { *p = packets{begun: true} }

// most is how many bytes may be fed next.
func (p *packets) most() int {
	if p.headed < len(p.head) {
		return len(p.head) - p.headed
	}
	return int(p.rest)
}

// feed takes the next bytes of the packet.
func (p *packets) feed(b []byte) {
	if p.headed < len(p.head) {
		if p.headed += copy(p.head[p.headed:], b); p.headed < len(p.head) {
			return
		}
		p.rest = binary.BigEndian.Uint32(p.head[:])
	} else {
		p.rest -= uint32(len(b)) //nolint:gosec // at most rest
	}
	p.begun = p.rest > 0
}
