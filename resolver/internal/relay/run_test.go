package relay

import (
	"context"
	"net"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
)

// Run relays between two connections of the net package, and waits for the end. Begun is told
// of the relay; may be nil.
func Run(ctx context.Context, client, server *net.TCPConn, o Options, begun func(*Relay)) Ended {
	var fds [2]int
	for i, c := range []*net.TCPConn{client, server} {
		fd, err := conn.Take(c)
		if err != nil {
			panic(err)
		}
		fds[i] = fd
	}
	done := make(chan Ended, 1)
	r := Start(NewGroup(ctx), loop.Next(), fds[0], fds[1], &o, func(e Ended) { done <- e })
	if begun != nil {
		begun(r)
	}
	return <-done
}
