package udp

import (
	"sync"

	"dormouse.dev/dormouse/resolver/internal/relay"
)

// A UDP port's sessions need its socket after the port is gone, and the kernel gives the port
// number to no other socket meanwhile. So the socket goes to whichever port has that number
// next: one of another name or protocol, or of another service.

// lease is a UDP socket for as long as a certain port has it. It is a listener.Socket.
type lease struct {
	socket *socket
	ended  chan struct{}
}

// leaseTo gives the socket to a port.
func (u *socket) leaseTo(p *Port) *lease {
	u.lease = &lease{socket: u, ended: make(chan struct{})}
	u.port.Store(p)
	p.socket.Store(u)
	return u.lease
}

// reopen gives a socket that is closing to another port; nil: the socket has ended.
func (u *socket) reopen(p *Port) *lease {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ending {
		return nil
	}
	u.closing = false
	u.port.Load().GiveFile()
	close(u.lease.ended)
	return u.leaseTo(p)
}

// Serve implements listener.Socket.
func (l *lease) Serve() error { return l.socket.serve() }

// Ended implements listener.Socket.
func (l *lease) Ended() <-chan struct{} { return l.ended }

// Close implements listener.Socket.
func (l *lease) Close() error {
	u := l.socket
	u.mu.Lock()
	if u.lease != l {
		u.mu.Unlock()
		return nil
	}
	u.closing = true
	closing := u.port.Load().closing
	closing.add(u)
	last := u.endLocked()
	u.mu.Unlock()
	if last {
		u.end()
	}
	return nil
}

// Cut implements listener.Socket. It cuts the sessions of earlier ports, too.
func (l *lease) Cut() {
	for _, s := range l.socket.all() {
		s.over(string(relay.ByCut))
	}
}

// endLocked reports whether a closing socket has no session left; then the caller has to end
// it.
func (u *socket) endLocked() bool {
	u.ending = u.ending || u.closing && len(u.sessions) == 0
	return u.ending
}

// end closes a socket that is ending.
func (u *socket) end() {
	u.port.Load().closing.remove(u)
	u.close()
}

// ClosingSockets are the sockets that take no new sessions, by their port numbers.
type ClosingSockets struct {
	mu  sync.Mutex
	all map[int]*socket
}

func (c *ClosingSockets) add(u *socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[int]*socket{}
	}
	c.all[u.number] = u
}

func (c *ClosingSockets) remove(u *socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[u.number] == u {
		delete(c.all, u.number)
	}
}

// take takes one out; nil: there is none.
func (c *ClosingSockets) take(number int) *socket {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.all[number]
	delete(c.all, number)
	return u
}

// Len is how many there are.
func (c *ClosingSockets) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}
