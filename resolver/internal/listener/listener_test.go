package listener

import (
	"context"
	"net"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// A peer that is gone without a word must be found, though nobody sets that on the
// connection itself.
func TestConnectionsHaveTheListenersKeepAlive(t *testing.T) {
	accepted := make(chan *net.TCPConn, 1)
	// The ports of the resolver aren't ephemeral; this one is the kernel's choice.
	var opened Socket
	l := Start(logr.Discard(), func(ctx context.Context) (Socket, error) {
		var err error
		opened, err = TCP("127.0.0.1", 0, func(c *net.TCPConn) { accepted <- c })(ctx)
		return opened, err
	})
	defer l.Wait()
	defer l.Close()
	c, err := net.Dial("tcp", opened.(*tcpSocket).ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	got := <-accepted
	defer func() { _ = got.Close() }()
	raw, err := got.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for _, want := range []struct {
			what               string
			level, name, value int
		}{
			{"keep-alive", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{"its idle time", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
			{"its interval", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
			{"its count", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
			{"no delay", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		} {
			if value, err := unix.GetsockoptInt(int(fd), want.level, want.name); err != nil || value != want.value {
				t.Errorf("%s is %d, %v; want %d", want.what, value, err, want.value)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
