package dataplane

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/api/v1alpha1"
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
			r.eventually("nothing is carried", func() bool { return r.server.Carrying() == 0 })
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

func TestManyClientsMakeOneWakeCallAtATime(t *testing.T) {
	r := newRig(t)
	r.operator.set(func(w http.ResponseWriter, n int) {
		if n == 1 {
			// The others come while the first call is under way.
			r.eventually("all clients wait", func() bool { return r.server.Carrying() == 200 })
		}
		accept(v1alpha1.PhaseWaking)(w, n)
	})
	address := r.serve("game", route.TCP)
	clients := make([]*net.TCPConn, 200)
	for i := range clients {
		clients[i] = dialTCP(t, address)
		write(t, clients[i], fmt.Sprintf("client %03d", i))
	}
	r.queued(200)
	r.eventually("a call is made for all", func() bool {
		calls := r.operator.all()
		return calls[len(calls)-1].Count == 200
	})
	r.phase(v1alpha1.PhaseWaking)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	for i, c := range clients {
		expect(t, c, fmt.Sprintf("client %03d", i))
	}
	if r.operator.overlap.Load() {
		t.Error("two wake calls were under way at once")
	}
	if n := r.operator.count(); n > 4 {
		t.Errorf("%d wake calls for clients that came at once", n)
	}
}

func TestTheWakeCallIsRepeatedWhateverTheAnswer(t *testing.T) {
	r := newRig(t)
	r.operator.set(func(w http.ResponseWriter, n int) {
		switch n {
		case 1:
			w.WriteHeader(http.StatusNotFound)
		case 2:
			w.WriteHeader(http.StatusUnauthorized)
		case 3:
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 4:
			_, _ = io.WriteString(w, "what?")
		case 5:
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, "{not json")
		case 6:
			panic(http.ErrAbortHandler)
		default:
			accept(v1alpha1.PhaseWaking)(w, n)
		}
	})
	c := dialTCP(t, r.serve("game", route.TCP))
	r.eventually("the operator is asked nine times", func() bool { return r.operator.count() >= 9 })
	r.operator.mu.Lock()
	for i := 1; i < len(r.operator.times); i++ {
		if apart := r.operator.times[i].Sub(r.operator.times[i-1]); apart > 1500*time.Millisecond {
			t.Errorf("call %d came %s after the one before", i+1, apart)
		}
	}
	r.operator.mu.Unlock()
	for outcome, want := range map[string]float64{"not_found": 1, "unauthorized": 1, "unavailable": 1, "rejected": 1, "malformed": 1} {
		if got := r.metric("dormouse_resolver_wake_calls_total", map[string]string{"outcome": outcome}); got != want {
			t.Errorf("%v calls %s, want %v", got, outcome, want)
		}
	}
	// Once nobody waits, nobody is asked.
	_ = c.Close()
	r.queued(0)
	before := r.operator.count()
	// Longer than the calls are apart; one may have been under way.
	r.never("more calls are made", 1200*time.Millisecond, func() bool { return r.operator.count() > before+1 })
}

// shortListener listens with the shortest queue that there is: it takes a
// connection or two, and the kernel drops what the others send.
func shortListener(t *testing.T, address string) (stop func()) {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _ = unix.Close(fd) })
	t.Cleanup(stop)
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}),
		unix.Listen(fd, 0),
	); err != nil {
		t.Fatal(err)
	}
	return stop
}

func TestAServerThatCrashesBeforeItTakesItsClientsCostsNoneOfThem(t *testing.T) {
	const clients = 20
	r := newRig(t)
	address := r.serve("game", route.TCP)
	var all []*net.TCPConn
	for i := range clients {
		c := dialTCP(t, address)
		write(t, c, fmt.Sprintf("client %02d", i))
		all = append(all, c)
	}
	r.queued(clients)
	server := freeAddress(t, route.TCP)
	crash := shortListener(t, server)
	r.backend(server, true)
	r.eventually("a client is delivered", func() bool { return r.sessions().Sessions > 0 })
	crash()
	listenTCP(t, server, echo)
	served := 0
	for i, c := range all {
		got := make([]byte, 9)
		if _, err := io.ReadFull(c, got); err != nil {
			continue
		}
		served++
		if want := fmt.Sprintf("client %02d", i); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	// Those that the server had taken are gone with it.
	if served < clients-3 {
		t.Errorf("%d of %d clients were served by the next attempt", served, clients)
	}
	r.queued(0)
}

func TestTheOperatorsWordIsNewerThanWhatWasWatched(t *testing.T) {
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseWaking, v1alpha1.PhaseAsleep} {
		t.Run("while the phase is "+string(phase), func(t *testing.T) {
			r := newRig(t)
			var up atomic.Bool
			r.operator.set(func(w http.ResponseWriter, n int) {
				answer := v1alpha1.PhaseAsleep
				if n == 1 || up.Load() {
					answer = v1alpha1.PhaseWaking
				}
				accept(answer)(w, n)
			})
			r.phase(phase)
			c := dialTCP(t, r.serve("game", route.TCP))
			// The first call lets the client in; then somebody puts the service
			// to sleep after all.
			r.eventually("the second call is answered", func() bool {
				return r.metric("dormouse_resolver_wake_calls_total", map[string]string{"outcome": "accepted"}) >= 2
			})
			server := freeAddress(t, route.TCP)
			var connected atomic.Bool
			listenTCP(t, server, func(c *net.TCPConn) {
				connected.Store(true)
				tag("hi")(c)
			})
			r.backend(server, true)
			asked := r.operator.count()
			r.eventually("it is asked again", func() bool { return r.operator.count() > asked })
			if connected.Load() {
				t.Error("the client was connected to a server that goes down")
			}
			up.Store(true)
			expect(t, c, "hi")
		})
	}
}

func TestAServingBackendThatRefusesKeepsItsClientsHeld(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	var clients []*net.TCPConn
	for range 50 {
		clients = append(clients, dialTCP(t, address))
	}
	r.queued(50)
	server := freeAddress(t, route.TCP)
	r.backend(server, true)
	// Kubernetes calls it serving, yet it is not there.
	r.never("a client is let go", 100*time.Millisecond, func() bool { return r.sessions().Queued != 50 })
	listenTCP(t, server, tag("hi"))
	for _, c := range clients {
		expect(t, c, "hi")
	}
}

func TestAPodWithAReadinessProbeGetsClientsOnlyOnceItServes(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	server := freeAddress(t, route.TCP)
	var taken atomic.Int32
	listenTCP(t, server, func(c *net.TCPConn) {
		taken.Add(1)
		tag("hi")(c)
	})
	r.backend(server, false)
	c := dialTCP(t, address)
	r.eventually("the wake call is answered", func() bool { return r.metric("dormouse_resolver_wake_calls_total", nil) > 0 })
	r.never("a pod that isn't ready gets a connection", 50*time.Millisecond, func() bool { return taken.Load() != 0 })
	r.backend(server, true)
	expect(t, c, "hi")
}

func TestATerminatingBackendGetsNobody(t *testing.T) {
	cases := map[string][]func(*route.Port){"found by a connect": nil, "found by a readiness probe": {probed}}
	for name, more := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP, more...)
			old, next := freeAddress(t, route.TCP), freeAddress(t, route.TCP)
			listenTCP(t, old, tag("old"))
			listenTCP(t, next, tag("new"))
			r.change(func(rt *route.Route) {
				rt.Ports[0].Backends = []route.Backend{
					{Address: netip.MustParseAddrPort(old), Serving: true, Terminating: true},
					{Address: netip.MustParseAddrPort(next), Serving: true},
				}
			})
			expect(t, dialTCP(t, address), "new")
			r.phase(v1alpha1.PhaseAwake)
			for range 5 {
				expect(t, dialTCP(t, address), "new")
			}
		})
	}
}

func TestAClientThatComesWhileTheServiceFallsAsleepWakesItBeforeItIsConnected(t *testing.T) {
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAsleep} {
		t.Run(string(phase), func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP)
			server := freeAddress(t, route.TCP)
			var connected atomic.Int32
			listenTCP(t, server, func(c *net.TCPConn) {
				connected.Add(1)
				tag("hi")(c)
			})
			r.backend(server, true)
			// The first client is let in by a call of its own, and the server is
			// known to be up from then on.
			expect(t, dialTCP(t, address), "hi")
			before, known := r.operator.count(), connected.Load()
			if before != 1 {
				t.Fatalf("%d wake calls, want 1", before)
			}

			proceed := make(chan struct{})
			r.operator.set(func(w http.ResponseWriter, n int) {
				switch n {
				case before + 1:
					<-proceed
					accept(v1alpha1.PhaseAsleep)(w, n)
				case before + 2:
					if connected.Load() != known {
						t.Error("a client was connected though the sleep was past cancelling")
					}
					accept(v1alpha1.PhaseWaking)(w, n)
				default:
					accept(v1alpha1.PhaseWaking)(w, n)
				}
			})
			r.phase(phase)
			c := dialTCP(t, address)
			r.eventually("the operator is asked", func() bool { return r.operator.count() == before+1 })
			if connected.Load() != known {
				t.Error("a client was connected before the operator answered")
			}
			close(proceed)
			expect(t, c, "hi")
			if r.operator.count() < before+2 {
				t.Error("the client was connected on an answer that let nobody in")
			}
			// The next client needs a call of its own.
			asked := r.operator.count()
			expect(t, dialTCP(t, address), "hi")
			if r.operator.count() <= asked {
				t.Error("the next client woke nobody")
			}
		})
	}
}

func TestAnAwakeServiceIsRelayedWithoutAWakeCall(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("hi"))
	r.backend(server, true)
	r.phase(v1alpha1.PhaseAwake)
	for range 3 {
		expect(t, dialTCP(t, address), "hi")
	}
	if n := r.operator.count(); n != 0 {
		t.Errorf("%d wake calls for a service that is awake", n)
	}
}

func TestClientsAreSpreadOverTheServers(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	var backends []route.Backend
	for i := range 3 {
		server := freeAddress(t, route.TCP)
		listenTCP(t, server, tag(fmt.Sprintf("%d", i)))
		backends = append(backends, route.Backend{Address: netip.MustParseAddrPort(server), Serving: true})
	}
	r.change(func(rt *route.Route) { rt.Ports[0].Backends, rt.Phase = backends, v1alpha1.PhaseAwake })
	got := map[byte]int{}
	for range 9 {
		c := dialTCP(t, address)
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		got[b[0]]++
	}
	for i := range 3 {
		if got[byte('0'+i)] != 3 {
			t.Errorf("server %d got %d clients of 9", i, got[byte('0'+i)])
		}
	}
}

func TestAServerThatCannotBeReachedIsPassedOver(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	live, dead := freeAddress(t, route.TCP), freeAddress(t, route.TCP)
	listenTCP(t, live, tag("hi"))
	r.change(func(rt *route.Route) {
		rt.Phase = v1alpha1.PhaseAwake
		rt.Ports[0].Backends = []route.Backend{
			{Address: netip.MustParseAddrPort(dead), Serving: true},
			{Address: netip.MustParseAddrPort(live), Serving: true},
		}
	})
	for range 4 {
		expect(t, dialTCP(t, address), "hi")
	}
}

func TestARemovedRouteRefusesWhoIsHeldAndLeavesWhoIsRelayed(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP)
	server := freeAddress(t, route.TCP)
	g := listenTCP(t, server, echo)
	relayed := dialTCP(t, address)
	write(t, relayed, "a")
	r.backend(server, true)
	expect(t, relayed, "a")
	// The next one is held: the server is gone for new connections.
	_ = g.Close()
	r.change(func(rt *route.Route) { rt.Ports[0].Backends = nil })
	held := dialTCP(t, address)
	r.queued(1)
	r.server.Remove(r.route.UID)
	expectGone(t, held)
	if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		_ = c.Close()
		t.Error("the port of a removed route still takes connections")
	}
	write(t, relayed, "b")
	expect(t, relayed, "b")
	if got := len(r.server.Sessions("").Services); got != 0 {
		t.Errorf("%d services in /sessions, want none", got)
	}
	if got := r.server.Carrying(); got != 1 {
		t.Errorf("%d clients are carried, want 1", got)
	}
	for _, name := range []string{"dormouse_resolver_held_clients", "dormouse_resolver_refused_clients_total", "dormouse_resolver_wake_calls_total"} {
		if got := r.metric(name, nil); got != 0 {
			t.Errorf("%s is still %v", name, got)
		}
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

func TestBothAddressFamiliesWork(t *testing.T) {
	r := newRig(t, onAll)
	address := r.serve("game", route.TCP)
	port := address[strings.LastIndex(address, ":"):]
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	server := ln.Addr().String()
	_ = ln.Close()
	listenTCP(t, server, tag("six"))
	r.backend(server, true)
	expect(t, dialTCP(t, "[::1]"+port), "six")
	expect(t, dialTCP(t, "127.0.0.1"+port), "six")
}

func TestAPortThatCannotBeOpenedIsToldAndTriedAgain(t *testing.T) {
	r := newRig(t)
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	number := int32(occupied.Addr().(*net.TCPAddr).Port)
	r.change(func(rt *route.Route) {
		rt.Ports = []route.Port{{Name: "game", Network: route.TCP, Protocol: v1alpha1.ProtocolTCP, ResolverPort: number}}
	})
	p := r.server.Routes("").Routes[0].Ports[0]
	if p.Listening || !strings.Contains(p.Error, "in use") {
		t.Errorf("a port that is taken shows as %+v", p)
	}
	_ = occupied.Close()
	r.eventually("the port is open", func() bool { return r.server.Routes("").Routes[0].Ports[0].Listening })
	if p := r.server.Routes("").Routes[0].Ports[0]; p.Error != "" {
		t.Errorf("a port that is open has the error %q", p.Error)
	}
}

func TestSessionsTellWhoIsCarried(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP)
	if got := r.server.Sessions("").Services; len(got) != 0 {
		t.Errorf("a service without clients is listed: %+v", got)
	}
	c := dialTCP(t, address)
	r.queued(1)
	if s := r.sessions(); s.Sessions != 0 || time.Since(s.LastActive) > time.Second {
		t.Errorf("held: %+v", s)
	}
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("hi"))
	r.backend(server, true)
	expect(t, c, "hi")
	r.eventually("the client counts as a session", func() bool {
		s := r.sessions()
		return s.Sessions == 1 && s.Queued == 0
	})
	first := r.sessions().LastActive
	r.eventually("an open connection is active now", func() bool { return r.sessions().LastActive.After(first) })
	_ = c.Close()
	r.eventually("the connection is not active any more", func() bool {
		a := r.sessions()
		b := r.sessions()
		return a.Sessions == 0 && a.LastActive.Equal(b.LastActive)
	})
	ended := r.sessions().LastActive
	if ended.Before(first) {
		t.Errorf("the last client left at %s and was there at %s", ended, first)
	}
	r.never("lastActive moves without a client", 20*time.Millisecond, func() bool { return !r.sessions().LastActive.Equal(ended) })
	if got := r.server.Sessions("another-uid").Services; len(got) != 0 {
		t.Errorf("asked for another uid: %+v", got)
	}
}
