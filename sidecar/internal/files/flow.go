package files

import (
	"io"
	"net"
	"sync"
)

// mostUnread bounds the bytes of a connection, as they came over the network, that nothing has read yet.
// A channel's window has room for two megabytes, so a client whose packets are as large as they may be
// never comes near. Of packets with a byte each, which take 36 on the way and some more in memory, the
// window alone would take a hundred megabytes.
const mostUnread = 3 << 20

// flow is a connection that is read no further while too much of what came over it is unread. What is read
// of its channels tells it: the library has no bound but the window, which counts no packets.
type flow struct {
	net.Conn

	mu sync.Mutex
	// read is told when something was read, or the connection is closed.
	read   *sync.Cond
	closed bool
	// limited is set once its user has logged in.
	limited bool
	unread  int64
	// parts are those of the channels.
	parts map[*part]bool
}

// part is what a channel has of a flow.
type part struct {
	*flow

	from io.Reader
	// waits is set while somebody waits for bytes of the channel, and empty where the last read left
	// nothing. Where both are there is nothing to read.
	waits, empty bool
}

func newFlow(c net.Conn) *flow {
	f := &flow{Conn: c, parts: map[*part]bool{}}
	f.read = sync.NewCond(&f.mu)
	return f
}

// limit has the bound count from now on.
func (f *flow) limit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limited, f.unread = true, 0
}

// Read implements net.Conn.
func (f *flow) Read(p []byte) (int, error) {
	f.mu.Lock()
	for f.limited && f.unread >= mostUnread && !f.closed {
		f.read.Wait()
	}
	f.mu.Unlock()
	n, err := f.Conn.Read(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread += int64(n)
	return n, err //nolint:wrapcheck // it is about the connection
}

// Close implements net.Conn.
func (f *flow) Close() error {
	f.mu.Lock()
	f.closed = true
	f.read.Broadcast()
	f.mu.Unlock()
	return f.Conn.Close() //nolint:wrapcheck // it is about the connection
}

// part is that of a new channel, which end takes away again. Until it is read what it has is unread.
func (f *flow) part(from io.Reader) *part {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &part{flow: f, from: from}
	f.parts[p] = true
	return p
}

func (p *part) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.parts, p)
	p.count(0)
}

// Read implements io.Reader. One that gives less than was asked for leaves nothing.
func (p *part) Read(to []byte) (int, error) {
	p.mu.Lock()
	p.waits = true
	p.mu.Unlock()
	n, err := p.from.Read(to)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits, p.empty = true, n < len(to)
	p.count(n)
	p.waits = false
	return n, err //nolint:wrapcheck // io.EOF is compared
}

// count counts what was read. Beside it there is what each packet takes, which nobody tells: where all
// channels are empty none of it is left.
func (f *flow) count(n int) {
	f.unread -= int64(n)
	for p := range f.parts {
		if !p.waits || !p.empty {
			f.read.Broadcast()
			return
		}
	}
	f.unread = 0
	f.read.Broadcast()
}
