package listener

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
)

// A peer that is gone without a word must be found, though nobody sets that on the
// connection itself; and what the net package sets by itself is not to last.
func TestConnectionsHaveTheListenersKeepAlive(t *testing.T) {
	type socket struct {
		fd    int
		close func() error
	}
	accepted := make(chan socket, 1)
	for name, clients := range map[string]Clients{
		"as accepted": func(_ *loop.Loop, fd int, from netip.AddrPort) {
			if from.Addr() != netip.MustParseAddr("127.0.0.1") || from.Port() == 0 {
				t.Errorf("the client is said to be at %s", from)
			}
			accepted <- socket{fd, func() error { return unix.Close(fd) }}
		},
		"as a Stream": func(on *loop.Loop, fd int, _ netip.AddrPort) {
			c, err := conn.NewStream(on, fd)
			if err != nil {
				t.Error(err)
				return
			}
			accepted <- socket{fd, c.Close}
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The ports of the resolver aren't ephemeral; this one is the kernel's choice.
			var opened Socket
			l := Start(logr.Discard, func() (Socket, error) {
				var err error
				opened, err = OpenTCP("127.0.0.1", 0, clients)
				return opened, err
			})
			defer l.Wait()
			defer l.Close()
			address, err := unix.Getsockname(opened.(*tcpSocket).file.FD)
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("tcp", conn.AddressOf(address).String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			got := <-accepted
			defer func() { _ = got.close() }()
			for _, want := range []struct {
				what               string
				level, name, value int
			}{
				{"keep-alive", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
				{"its idle time", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 30},
				{"its interval", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
				{"its count", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
				{"its user timeout in ms", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 60_000},
				{"no delay", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			} {
				if value, err := unix.GetsockoptInt(got.fd, want.level, want.name); err != nil || value != want.value {
					t.Errorf("%s is %d, %v; want %d", want.what, value, err, want.value)
				}
			}
		})
	}
}

// Who is gone again before it is accepted is known by its address all the same: by
// that it is told whether it begins with a header.
func TestWhoIsGoneHasAnAddress(t *testing.T) {
	accepted := make(chan netip.AddrPort, 1)
	socket, err := OpenTCP("127.0.0.1", 0, func(_ *loop.Loop, fd int, from netip.AddrPort) {
		_ = unix.Close(fd)
		accepted <- from
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	address, err := unix.Getsockname(socket.(*tcpSocket).file.FD)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", conn.AddressOf(address).String())
	if err != nil {
		t.Fatal(err)
	}
	want := c.LocalAddr().(*net.TCPAddr).AddrPort()
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	if err := socket.Serve(); err != nil {
		t.Fatal(err)
	}
	if got := <-accepted; got != want {
		t.Errorf("the client is said to be at %s, and was at %s", got, want)
	}
}

// Clients who come while the process has no files left wait in the kernel's queue, at
// no cost, and are served once there are files again.
func TestClientsWaitWhileThereAreNoFiles(t *testing.T) {
	const clients = 3
	accepted := make(chan netip.AddrPort, clients)
	socket, err := OpenTCP("127.0.0.1", 0, func(_ *loop.Loop, fd int, from netip.AddrPort) {
		_ = unix.Close(fd)
		accepted <- from
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	address, err := unix.Getsockname(socket.(*tcpSocket).file.FD)
	if err != nil {
		t.Fatal(err)
	}
	var fds [clients]int
	for i := range fds {
		if fds[i], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fds[i]) }()
	}
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	giveBack := noFiles(t)
	defer giveBack()
	if err := socket.Serve(); err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if err := unix.Connect(fd, address); err != nil {
			t.Fatal(err)
		}
	}
	const while = 6 * acceptPause
	before := used()
	select {
	case from := <-accepted:
		t.Fatalf("%s was accepted without a file", from)
	case <-time.After(while):
	}
	// Who asks again at once, in each loop, takes all of a processor.
	if took := used() - before; took > while/2 {
		t.Errorf("waiting for %s took %s of a processor", while, took)
	}
	giveBack()
	want := map[netip.AddrPort]bool{}
	for _, fd := range fds {
		own, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		want[conn.AddressOf(own)] = true
	}
	for range fds {
		from := <-accepted
		if !want[from] {
			t.Errorf("%s was accepted, and is none of the clients, or twice", from)
		}
		delete(want, from)
	}
}

// noFiles leaves the process no number for another file, until they are given back.
func noFiles(t *testing.T) (giveBack func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// The kernel gives the lowest number that is free.
	next, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(next)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
}
