package dataplane

import (
	"sync"

	"dormouse.dev/dormouse/resolver/internal/forward"
)

// A UDP port's sessions need its socket when the port is gone, and the kernel gives the
// number to no other socket meanwhile. So whoever gets the number gets the socket: a
// port of another name or protocol, or of another service.

// udpLease is a UDP socket, as long as it is a certain port's. It is a listener.Socket.
type udpLease struct {
	socket *udpSocket
	ended  chan struct{}
}

// leaseTo gives the socket to a port.
func (u *udpSocket) leaseTo(p *servedPort) *udpLease {
	u.lease = &udpLease{socket: u, ended: make(chan struct{})}
	u.port.Store(p)
	p.socket.Store(u)
	return u.lease
}

// reopen gives a socket that is closing to another port; nil: it has ended.
func (u *udpSocket) reopen(p *servedPort) *udpLease {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ending {
		return nil
	}
	u.closing = false
	u.port.Load().giveBackFile()
	close(u.lease.ended)
	return u.leaseTo(p)
}

// Serve implements listener.Socket.
func (l *udpLease) Serve() error { return l.socket.serve() }

// Ended implements listener.Socket.
func (l *udpLease) Ended() <-chan struct{} { return l.ended }

// Close implements listener.Socket.
func (l *udpLease) Close() error {
	u := l.socket
	u.mu.Lock()
	if u.lease != l {
		u.mu.Unlock()
		return nil
	}
	u.closing = true
	closing := &u.port.Load().service.server.closing
	closing.add(u)
	last := u.endLocked()
	u.mu.Unlock()
	if last {
		u.end()
	}
	return nil
}

// Cut implements listener.Socket. It is for sessions of earlier ports, too.
func (l *udpLease) Cut() {
	for _, s := range l.socket.all() {
		s.over(string(forward.ByCut))
	}
}

// endLocked says that a socket that is closing has no session left, and is to be ended
// by who asks.
func (u *udpSocket) endLocked() bool {
	u.ending = u.ending || u.closing && len(u.sessions) == 0
	return u.ending
}

// end closes a socket that is ending.
func (u *udpSocket) end() {
	u.port.Load().service.server.closing.remove(u)
	u.close()
}

// closingSockets are UDP sockets that take no new sessions, by their numbers.
type closingSockets struct {
	mu  sync.Mutex
	all map[int]*udpSocket
}

func (c *closingSockets) add(u *udpSocket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[int]*udpSocket{}
	}
	c.all[u.number] = u
}

func (c *closingSockets) remove(u *udpSocket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[u.number] == u {
		delete(c.all, u.number)
	}
}

// take takes one out; nil: there is none.
func (c *closingSockets) take(number int) *udpSocket {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.all[number]
	delete(c.all, number)
	return u
}
