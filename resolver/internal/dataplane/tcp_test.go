package dataplane

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestWhatIsSentWhileAsleepArrivesAndIsAnsweredOnTheSameConnection(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP)
	c := dialTCP(t, address)
	write(t, c, "hello, ")
	r.queued(1)
	write(t, c, "server")

	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	expect(t, c, "hello, server")
	write(t, c, " and more")
	expect(t, c, " and more")
	_ = c.CloseWrite()
	expectEnd(t, c)

	r.eventually("the session has ended", func() bool { return r.sessions().Sessions == 0 })
	for direction, want := range map[string]float64{"to_server": 22, "to_client": 22} {
		if got := r.metric("dormouse_resolver_bytes_total", map[string]string{"direction": direction}); got != want {
			t.Errorf("%v bytes %s, want %v", got, direction, want)
		}
	}
	call := r.operator.all()[0]
	if call.Count != 1 || call.Svc != "lobby" || call.Namespace != "games" {
		t.Errorf("the wake call was %+v", call)
	}
	if got := r.metric("dormouse_resolver_wake_seconds", map[string]string{"stage": "total"}); got != 1 {
		t.Errorf("%v wakes were timed, want 1", got)
	}
}

func TestAServerThatSpeaksFirstIsHeardByAClientThatOnlyConnects(t *testing.T) {
	r := newRig(t)
	c := dialTCP(t, r.serve("game", route.TCP))
	r.queued(1)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("welcome"))
	r.backend(server, true)
	expect(t, c, "welcome")
}

func TestHalfCloseGoesBothWays(t *testing.T) {
	// The server answers only once it has heard all, then says farewell after
	// the client has said all it has to.
	lastWord := func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		_, _ = fmt.Fprintf(c, "got %d bytes", len(all))
	}
	// The server says all it has to say first and then listens.
	heard := make(chan string, 2)
	firstWord := func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "I am done")
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	}
	cases := map[string]struct {
		awake bool
		serve func(*net.TCPConn)
		play  func(t *testing.T, c *net.TCPConn, up func())
	}{
		"a client that ends its side while held gets the whole answer": {
			serve: lastWord,
			play: func(t *testing.T, c *net.TCPConn, up func()) {
				write(t, c, "12345")
				_ = c.CloseWrite()
				up()
				expect(t, c, "got 5 bytes")
				expectEnd(t, c)
			},
		},
		"a client that ends its side while relayed gets the whole answer": {
			serve: lastWord,
			play: func(t *testing.T, c *net.TCPConn, up func()) {
				up()
				write(t, c, "1234567")
				_ = c.CloseWrite()
				expect(t, c, "got 7 bytes")
				expectEnd(t, c)
			},
		},
		"a server that ends its side still hears the client": {
			serve: firstWord,
			play: func(t *testing.T, c *net.TCPConn, up func()) {
				up()
				expect(t, c, "I am done")
				expectEnd(t, c)
				write(t, c, "but I am not")
				_ = c.CloseWrite()
				if got := <-heard; got != "but I am not" {
					t.Errorf("the server heard %q", got)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := dialTCP(t, r.serve("game", route.TCP))
			server := freeAddress(t, route.TCP)
			tc.play(t, c, func() {
				r.queued(1)
				listenTCP(t, server, tc.serve)
				r.backend(server, true)
			})
			_ = c.Close()
			r.eventually("nothing is carried", func() bool { return r.server.Clients() == 0 })
		})
	}
}

func TestAResetIsPassedOn(t *testing.T) {
	r := newRig(t)
	ended := make(chan error, 1)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "x")
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	c := dialTCP(t, r.serve("game", route.TCP))
	r.backend(server, true)
	expect(t, c, "x")
	_ = c.SetLinger(0)
	_ = c.Close()
	if err := <-ended; err == nil {
		t.Error("the server saw an orderly end of a connection that was reset")
	}
}

func TestBothAddressFamiliesWork(t *testing.T) {
	r := newRig(t, onAll)
	address := r.serve("game", route.TCP)
	port := address[strings.LastIndex(address, ":"):]
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatalf("this test needs IPv6 on loopback: %v", err)
	}
	server := ln.Addr().String()
	_ = ln.Close()
	listenTCP(t, server, tag("six"))
	r.backend(server, true)
	expect(t, dialTCP(t, "[::1]"+port), "six")
	expect(t, dialTCP(t, "127.0.0.1"+port), "six")
}
