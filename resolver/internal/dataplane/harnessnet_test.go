package dataplane

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/route"
)

var taken sync.Map

// freePort is a port that nobody listens on. It is not from the ephemeral range,
// where a connection of another test might take it.
func freePort(t testing.TB, network route.Network) int {
	t.Helper()
	// A process that is being started has what is open, and keeps a port that is closed
	// here until it runs its own program.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for number := 21000 + os.Getpid()%4000; number < 29000; number++ {
		if _, used := taken.LoadOrStore(number, true); used {
			continue
		}
		if network == route.UDP {
			if c, err := net.ListenUDP("udp", &net.UDPAddr{Port: number}); err == nil {
				_ = c.Close()
				return number
			}
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", number)); err == nil {
			_ = l.Close()
			return number
		}
	}
	t.Fatal("no port is free")
	return 0
}

func freeAddress(t testing.TB, network route.Network) string {
	return fmt.Sprintf("127.0.0.1:%d", freePort(t, network))
}

// gameServer is a TCP server that hands its connections to a test.
type gameServer struct {
	net.Listener
	wg    sync.WaitGroup
	conns sync.Map
}

// listen opens a port.
func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func listenTCP(t testing.TB, address string, handle func(*net.TCPConn)) *gameServer {
	t.Helper()
	ln := listen(t, address)
	g := &gameServer{Listener: ln}
	g.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			g.conns.Store(c, true)
			g.wg.Go(func() {
				defer func() { _ = c.Close() }()
				handle(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(g.stop)
	return g
}

func (g *gameServer) stop() {
	_ = g.Close()
	g.conns.Range(func(c, _ any) bool {
		_ = c.(net.Conn).Close()
		return true
	})
	g.wg.Wait()
}

// echo sends back what it gets and ends when the client does.
func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// tag answers each connection with a text and then echoes.
func tag(text string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		_, _ = io.WriteString(c, text)
		echo(c)
	}
}

func dialTCP(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	return c.(*net.TCPConn)
}

func write(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// expect reads exactly a text.
func expect(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil {
		t.Fatalf("reading %q: %v after %q", want, err, got[:n])
	}
	if string(got) != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// expectEnd reports whether nothing more comes.
func expectEnd(t testing.TB, c net.Conn) {
	t.Helper()
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Fatalf("at the end came %q, %v", rest, err)
	}
}

// expectGone reports whether the connection is ended or reset, without a byte.
func expectGone(t testing.TB, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Fatalf("got %d bytes, %v from a connection that should be gone", n, err)
	}
}
