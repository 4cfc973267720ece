package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/net/netutil"
)

// maxConnections bounds the connections of a listener. Further ones wait.
const maxConnections = 256

// listenLoopback opens a port on 127.0.0.1 and, if the machine has it, on [::1]: games connect
// to localhost, which may be either. Port 0 is any free one.
func listenLoopback(ctx context.Context, port int) (listeners []net.Listener, chosen int, err error) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		address := net.JoinHostPort(host, strconv.Itoa(port))
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			if len(listeners) > 0 && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
				continue
			}
			closeAll(listeners)
			return nil, 0, fmt.Errorf("listening on %s: %w", address, err)
		}
		if bound, ok := ln.Addr().(*net.TCPAddr); ok {
			port = bound.Port
		}
		listeners = append(listeners, netutil.LimitListener(ln, maxConnections))
	}
	return listeners, port, nil
}

func closeAll(listeners []net.Listener) {
	for _, ln := range listeners {
		_ = ln.Close()
	}
}
