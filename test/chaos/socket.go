package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"dormouse.dev/dormouse/test/player"
)

// Players' ports over UDP. A session has no end of its own: for two minutes
// servers and resolvers take a datagram from the same port for the session
// before, so that the kernel's choice at random would now and then be wrong.
const (
	firstUDPPort = 10_000
	udpPorts     = 50_000
	// portsPerSecond is more than players come, so that a run begins beyond the
	// ports of the run before.
	portsPerSecond = 20
)

// ports deals out UDP ports in turn.
type ports struct{ next atomic.Int64 }

func (p *ports) begin(now time.Time) { p.next.Store(now.Unix() * portsPerSecond) }

func (p *ports) take() int { return firstUDPPort + int(p.next.Add(1)%udpPorts) }

// dialPlayer opens players' sockets, and tells a socket's port before anything
// is sent: a connection that never comes to be has one as well.
func (r *run) dialPlayer(port *string) player.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return r.dial(ctx, network, address, port)
	}
}

func (r *run) dial(ctx context.Context, network, address string, port *string) (conn net.Conn, err error) {
	wanted := 0 // the kernel's choice
	if network == "udp" {
		wanted = r.ports.take()
	}
	dialer := &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		bound, err := bind(raw, r.env.Cluster.PlayerAddrs()[0].As4(), wanted)
		if err != nil {
			return fmt.Errorf("take port %d: %w", wanted, err)
		}
		*port = strconv.Itoa(bound)
		r.flows.forget(flow{network, *port}) // The port's last session is over.
		return nil
	}}
	err = r.env.Cluster.InPlayer(func() (err error) {
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// bind gives a socket its port before it connects.
func bind(raw syscall.RawConn, addr [4]byte, wanted int) (port int, err error) {
	failed := raw.Control(func(fd uintptr) {
		if err = syscall.Bind(int(fd), &syscall.SockaddrInet4{Addr: addr, Port: wanted}); err != nil {
			return
		}
		var name syscall.Sockaddr
		if name, err = syscall.Getsockname(int(fd)); err != nil {
			return
		}
		if v4, ok := name.(*syscall.SockaddrInet4); ok {
			port = v4.Port
		}
	})
	return port, errors.Join(failed, err)
}
