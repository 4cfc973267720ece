// Package forward owns relaying: it copies between a client and a server once
// they are connected, and counts what it copies. Who is connected to whom, and
// when, is decided elsewhere.
package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
)

// Counter counts bytes on their way; nil counts nothing.
type Counter func(bytes int)

// Relay copies between two TCP connections until both directions have ended,
// and closes both. The end of one direction is passed on as such, so that a
// side that has said all it has to say still hears the rest. A connection that
// is reset is reset on the other side. The end of the context cuts both.
func Relay(ctx context.Context, client, server *net.TCPConn, toServer, toClient Counter) error {
	a, err := conn.Take(client)
	if err != nil {
		_ = server.Close()
		return err
	}
	b, err := conn.Take(server)
	if err != nil {
		_ = unix.Close(a)
		return err
	}
	done := make(chan error, 1)
	Start(ctx, loop.Next(), a, b, toServer, toClient, func(err error) { done <- err })
	return <-done
}

// Start is Relay for sockets that are nobody else's, on a loop, and doesn't wait: done
// is told by the loop, which it must not keep waiting.
func Start(ctx context.Context, l *loop.Loop, client, server int, toServer, toClient Counter, done func(error)) {
	r := &relay{done: done}
	r.up = flow{relay: r, src: &r.client, dst: &r.server, count: toServer}
	r.down = flow{relay: r, src: &r.server, dst: &r.client, count: toClient}
	r.client.in, r.client.out = &r.up, &r.down
	r.server.in, r.server.out = &r.down, &r.up
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop = context.AfterFunc(ctx, func() { l.Do(r.cut) })
	r.fail(errors.Join(r.client.file.Open(l, client, &r.client), r.server.file.Open(l, server, &r.server)))
	if !r.closed {
		r.fail(errors.Join(r.client.file.Want(loop.In), r.server.file.Want(loop.In)))
	}
}

// relay is two connections. It is for their loop.
type relay struct {
	// mu keeps the loop away until it waits for both.
	mu             sync.Mutex
	client, server end
	up, down       flow
	closed         bool
	err            error
	stop           func() bool
	done           func(error)
}

// end is one of the connections: the flow that comes in from it, and the one that
// goes out to it.
type end struct {
	file    loop.File
	in, out *flow
}

// Ready implements loop.Handler.
func (e *end) Ready(_ *loop.Loop, events uint32) {
	r := e.in.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.out.waits() && events&(loop.Out|loop.Broken) != 0 {
		e.out.drain()
	}
	if !r.closed && !e.in.waits() && !e.in.ended && events&(loop.In|loop.Broken) != 0 {
		e.in.pump()
	}
	switch {
	case r.closed:
	case r.up.ended && r.down.ended:
		r.close()
	default:
		r.fail(r.client.want())
		r.fail(r.server.want())
	}
}

// want has the loop wait for what is missing.
func (e *end) want() error {
	var events uint32
	if !e.in.ended && !e.in.waits() {
		events = loop.In
	}
	if e.out.waits() {
		events |= loop.Out
	}
	return e.file.Want(events)
}

// cut ends both at once.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.close()
}

func (r *relay) close() {
	if r.closed {
		return
	}
	r.closed = true
	r.up.release()
	r.down.release()
	r.client.file.Close()
	r.server.file.Close()
	r.stop()
	r.done(r.err)
}

// fail ends both where something went wrong. Nothing more can get through then; an
// orderly end would tell the other side that it has everything.
func (r *relay) fail(err error) {
	if err == nil || r.closed {
		return
	}
	for _, fd := range []int{r.client.file.FD(), r.server.file.FD()} {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		r.err = fmt.Errorf("relaying: %w", err)
	}
	r.close()
}
