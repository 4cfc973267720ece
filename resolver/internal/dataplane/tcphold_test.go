package dataplane

import (
	"crypto/rand"
	"crypto/sha256"
	"io"
	"net"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestAClientIsHeldNoLongerThanTheTimeout(t *testing.T) {
	r := newRig(t)
	r.route.Hold.Timeout = 50 * time.Millisecond
	address := r.serve("game", route.TCP)
	c := dialTCP(t, address)
	write(t, c, "hello")
	expectGone(t, c)
	if got := r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": "timeout"}); got != 1 {
		t.Errorf("%v clients were refused for the timeout, want 1", got)
	}
	r.queued(0)
}

func TestATimeoutOfZeroIsNever(t *testing.T) {
	r := newRig(t)
	r.route.Hold.Timeout = 0
	c := dialTCP(t, r.serve("game", route.TCP))
	r.queued(1)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("hi"))
	r.backend(server, true)
	expect(t, c, "hi")
}

func TestWhoIsOverMaxConnectionsIsRefusedAndCounted(t *testing.T) {
	r := newRig(t)
	r.route.Hold.MaxConnections = 2
	game, query := r.serve("game", route.TCP), r.serve("query", route.TCP)
	a, b := dialTCP(t, game), dialTCP(t, query)
	r.queued(2)
	expectGone(t, dialTCP(t, game))
	expectGone(t, dialTCP(t, query))
	if got := r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": "queue_full"}); got != 2 {
		t.Errorf("%v clients were refused, want 2", got)
	}
	// A place that is left can be taken.
	_ = a.Close()
	r.queued(1)
	third := dialTCP(t, game)
	r.queued(2)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("hi"))
	r.backend(server, true)
	expect(t, b, "hi")
	expect(t, third, "hi")
}

func TestAClientThatSendsMoreThanIsKeptIsSlowedDownAndLosesNothing(t *testing.T) {
	r := newRig(t)
	r.route.Hold.MaxBytes = 4096
	c := dialTCP(t, r.serve("game", route.TCP))
	sent := make([]byte, 16<<20)
	_, _ = rand.Read(sent)
	wrote := make(chan error, 1)
	var progress atomic.Int64
	go func() {
		for rest := sent; len(rest) > 0; {
			n, err := c.Write(rest[:min(len(rest), 64<<10)])
			if err != nil {
				wrote <- err
				return
			}
			rest = rest[n:]
			progress.Add(int64(n))
		}
		wrote <- c.CloseWrite()
	}()
	r.queued(1)
	// The kernel's buffers take some of it; then the client has to wait.
	r.eventually("the client is slowed down", func() bool {
		before := progress.Load()
		return before > 0 && !within(100*time.Millisecond, func() bool { return progress.Load() != before })
	})
	if progress.Load() == int64(len(sent)) {
		t.Fatal("everything was taken in")
	}
	sum := make(chan [32]byte, 1)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, func(c *net.TCPConn) {
		h := sha256.New()
		_, _ = io.Copy(h, c)
		sum <- [32]byte(h.Sum(nil))
	})
	r.backend(server, true)
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if got := <-sum; got != sha256.Sum256(sent) {
		t.Error("the server got something else")
	}
}

func TestAClientThatGoesAwayLeavesTheQueue(t *testing.T) {
	cases := map[string]func(*net.TCPConn){
		"closed without a byte": func(c *net.TCPConn) { _ = c.Close() },
		"reset after it ended its side": func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "x")
			_ = c.CloseWrite()
			_ = c.SetLinger(0)
			_ = c.Close()
		},
		"reset after more bytes than are kept": func(c *net.TCPConn) {
			_, _ = c.Write(make([]byte, 10_000))
			_ = c.SetLinger(0)
			_ = c.Close()
		},
		"reset after bytes": func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "x")
			_ = c.SetLinger(0)
			_ = c.Close()
		},
	}
	for name, leave := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.route.Hold.MaxBytes = 1024
			c := dialTCP(t, r.serve("game", route.TCP))
			r.queued(1)
			r.eventually("the operator is asked", func() bool { return r.operator.count() > 0 })
			leave(c)
			r.queued(0)
		})
	}
}

func TestFiveHundredClientsAtOnceAreServedTogether(t *testing.T) {
	const clients = 500
	r := newRig(t)
	address := r.serve("game", route.TCP)
	all := make([]*net.TCPConn, clients)
	for i := range all {
		all[i] = dialTCP(t, address)
		write(t, all[i], "x")
	}
	r.queued(clients)
	server := freeAddress(t, route.TCP)
	r.backend(server, true)
	r.phase(v1alpha1.PhaseWaking)
	took := make([]time.Duration, clients)
	var wg sync.WaitGroup
	var listening time.Time
	begun := make(chan struct{})
	for i, c := range all {
		wg.Go(func() {
			<-begun
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			took[i] = time.Since(listening)
		})
	}
	listening = time.Now()
	close(begun)
	listenTCP(t, server, echo)
	wg.Wait()
	var slowest, first time.Duration = 0, time.Hour
	for _, d := range took {
		slowest, first = max(slowest, d), min(first, d)
	}
	t.Logf("first after %s, last after %s", first, slowest)
	if slowest > 250*time.Millisecond*raceFactor {
		t.Errorf("the last client had its first byte %s after the server listened", slowest)
	}
}

// Most clients that end their side were told to give up, by their own time-out.
func TestWhoEndsItsSideWhileItWaitsIsGoneWhereThatIsAsked(t *testing.T) {
	for name, held := range map[string]int{"all of it is kept": 1 << 10, "some is left in the kernel": 4} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP, func(p *route.Port) { p.AbortOnClose = true })
			r.change(func(rt *route.Route) { rt.Hold.MaxBytes = held })
			c, stays := dialTCP(t, address), dialTCP(t, address)
			write(t, c, "POST /orders")
			write(t, stays, "ping")
			r.queued(2)
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			r.queued(1)
			expectGone(t, c)
			server := freeAddress(t, route.TCP)
			var came atomic.Int32
			listenTCP(t, server, func(c *net.TCPConn) {
				came.Add(1)
				echo(c)
			})
			r.backend(server, true)
			expect(t, stays, "ping")
			if n := came.Load(); n != 1 {
				t.Errorf("%d connections came to the server, want that of who stayed", n)
			}
			if n := r.ended(accesslog.GaveUp); n != 1 {
				t.Errorf("%v clients are counted as gone, want 1", n)
			}
		})
	}
}

// Many clients wait, so each of them waits on the stack that a goroutine begins with, also after
// it has sent something.
func TestAClientWaitsOnASmallStack(t *testing.T) {
	if raceFactor > 1 {
		t.Skip("the race detector takes more of the stack: make test-unit runs it without")
	}
	const clients, greeting = 1000, "hello"
	stacks := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.StackInuse)
	}
	r := newRig(t)
	r.route.Hold.MaxConnections = clients
	address := r.serve("game", route.TCP)
	before := stacks()
	for range clients {
		write(t, dialTCP(t, address), greeting)
	}
	r.eventually("all is held", func() bool {
		return r.sessions().Queued == clients && r.server.Held.Used() >= int64(clients*len(greeting))
	})
	// It depends on what the process's other goroutines use.
	begins := []metrics.Sample{{Name: "/gc/stack/starting-size:bytes"}}
	metrics.Read(begins)
	most := int(begins[0].Value.Uint64()) * 3 / 2
	each := 0
	if !within(5*time.Second, func() bool { each = (stacks() - before) / clients; return each < most }) {
		t.Errorf("each client's stack has %d bytes, want less than %d", each, most)
	}
}
