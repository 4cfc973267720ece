package httpserver

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// troubled is a listener whose first accepts fail.
type troubled struct {
	net.Listener
	errs []error
	next atomic.Int32
}

func (l *troubled) Accept() (net.Conn, error) {
	if n := int(l.next.Add(1)); n <= len(l.errs) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: l.errs[n-1]}
	}
	return l.Listener.Accept()
}

func TestNoAcceptErrorEndsTheServer(t *testing.T) {
	for _, err := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.EPERM} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			s := New(Options{Address: "127.0.0.1:0", Log: logr.Discard()})
			if err := s.Listen(t.Context()); err != nil {
				t.Fatal(err)
			}
			g := s.ln.(*gate)
			g.Listener = &troubled{Listener: g.Listener, errs: []error{err, err, err}}
			url, _ := start(t, s)
			if status, _ := call(t, http.MethodGet, url+HealthPath, ""); status != http.StatusOK {
				t.Errorf("status %d after three accepts failed, want 200", status)
			}
		})
	}
}

// crowd is a listener at which there is always one more connection.
type crowd struct{ net.Listener }

func (crowd) Accept() (net.Conn, error) {
	c, _ := net.Pipe()
	return c, nil
}

// Each connection has a goroutine that wants the processor: those of thousands that come at once would all be there
// before anybody else's turn.
func TestOthersHaveTheirTurnWhileManyConnect(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const turns = 4
	g := newGate(crowd{}, turns*turn, turns*turn, nil, logr.Discard())
	var had atomic.Int32
	var others sync.WaitGroup
	others.Go(func() {
		for range turns {
			had.Add(1)
			runtime.Gosched()
		}
	})
	for range turns * turn {
		c, err := g.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	if n := had.Load(); n < turns/2 {
		t.Errorf("others had %d turns while %d connected, want about %d", n, turns*turn, turns)
	}
	others.Wait()
}

// A server that can't accept stops when it is told to.
func TestAServerThatCannotAcceptStops(t *testing.T) {
	s := New(Options{Address: "127.0.0.1:0", Log: logr.Discard()})
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := s.ln.(*gate)
	errs := make([]error, 100)
	for i := range errs {
		errs[i] = unix.EMFILE
	}
	l := &troubled{Listener: g.Listener, errs: errs}
	g.Listener = l
	_, stop := start(t, s)
	for l.next.Load() < 5 {
		<-time.After(time.Millisecond)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(DefaultShutdownTimeout):
		t.Error("the server still waits for a file")
	}
}

// stranger opens a connection from a loopback address, has one request answered if
// asked to, and keeps it.
func stranger(t *testing.T, s *Server, from string, ask bool) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if ask {
		askHealth(t, c)
	}
	return c
}

// askHealth has a request answered on a connection.
func askHealth(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%s has no answer: %v", c.LocalAddr(), err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, want 200", resp.StatusCode)
	}
}

// closedBy waits until the server has closed a connection.
func closedBy(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of %s is open: %v", c.LocalAddr(), err)
	}
}

func TestConnectionsAreBoundedAndTheLatestIsServed(t *testing.T) {
	const most, ofCaller = 8, 3
	counts := prometheus.NewRegistry()
	s := New(Options{Address: "127.0.0.1:0", Log: logr.Discard(), Registerer: counts, MaxConnections: most, MaxConnectionsPerCaller: ofCaller})
	start(t, s)
	g := s.ln.(*gate)
	held := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.open
	}

	// One address: its own connections make room, the one that waited longest first.
	var mine []net.Conn
	for range ofCaller {
		mine = append(mine, stranger(t, s, "127.0.0.9", true))
	}
	askHealth(t, mine[0])
	another := stranger(t, s, "127.0.0.9", true)
	closedBy(t, mine[1])
	askHealth(t, mine[0])
	askHealth(t, mine[2])
	askHealth(t, another)
	if n := held(); n != ofCaller {
		t.Errorf("%d connections of one address are open, want %d", n, ofCaller)
	}

	// Many addresses: whoever comes is served, and no more are kept than may.
	for i := range 3 * most {
		stranger(t, s, (&net.IPAddr{IP: net.IPv4(127, 0, 1, byte(i))}).String(), true)
	}
	if n := held(); n != most {
		t.Errorf("%d connections are open, want %d", n, most)
	}
	// So is one of those whose requests never came.
	for i := range 3 * most {
		stranger(t, s, (&net.IPAddr{IP: net.IPv4(127, 0, 2, byte(i))}).String(), false)
	}
	stranger(t, s, "127.0.0.10", true)
	want := map[string]float64{tooManyOfCaller: 1, tooMany: 3*most - (most - ofCaller) + 3*most + 1}
	got := map[string]float64{}
	for reason := range want {
		got[reason] = testutil.ToFloat64(s.closed.WithLabelValues(reason))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("closed by reason (-want +got):\n%s", diff)
	}
}

// A request that is being answered isn't cut off, and what comes meanwhile is refused.
func TestARequestThatIsAnsweredKeepsItsConnection(t *testing.T) {
	s := New(Options{Address: "127.0.0.1:0", Log: logr.Discard(), MaxConnections: 1})
	began, goOn := make(chan struct{}), make(chan struct{})
	s.Handle(fasthttp.MethodGet, "/slow", func(*fasthttp.RequestCtx) {
		close(began)
		<-goOn
	})
	url, _ := start(t, s)
	answered := make(chan int, 1)
	go func() {
		status, _ := call(t, http.MethodGet, url+"/slow", "")
		answered <- status
	}()
	<-began
	closedBy(t, stranger(t, s, "127.0.0.9", false))
	close(goOn)
	if status := <-answered; status != http.StatusOK {
		t.Errorf("status %d, want 200", status)
	}
	stranger(t, s, "127.0.0.9", true)
}

// What has gone takes no place.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	s := New(Options{Address: "127.0.0.1:0", Log: logr.Discard()})
	start(t, s)
	for range 50 {
		_ = stranger(t, s, "127.0.0.9", true).Close()
	}
	g := s.ln.(*gate)
	for began := time.Now(); ; <-time.After(time.Millisecond) {
		g.mu.Lock()
		open, waiting, callers := g.open, g.waiting.Len(), len(g.callers)
		g.mu.Unlock()
		if open == 0 && waiting == 0 && callers == 0 {
			return
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%d connections, %d that wait and %d callers are kept, want none", open, waiting, callers)
		}
	}
}

// A connection on which several requests are answered at once, as HTTP/2 has them, waits only once the
// last of them is.
func TestAConnectionWaitsOnceAllIsAnswered(t *testing.T) {
	g := newGate(nil, 1, 1, nil, logr.Discard())
	here, there := net.Pipe()
	defer func() { _ = there.Close() }()
	c := g.admit(here)
	first, second := Answering(c), Answering(c)
	for _, step := range []struct {
		done    func()
		waiting int
	}{{func() {}, 0}, {first, 0}, {second, 1}} {
		if step.done(); g.waiting.Len() != step.waiting {
			t.Errorf("%d connections wait, want %d", g.waiting.Len(), step.waiting)
		}
	}
	if err := c.Close(); err != nil || g.waiting.Len() != 0 {
		t.Errorf("%d connections wait once it is closed: %v", g.waiting.Len(), err)
	}
}

// piped is a connection in memory that comes from an address.
type piped struct {
	net.Conn
	address string
}

// RemoteAddr implements net.Conn.
func (p piped) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(p.address), 4000))
}

// come has a gate admit connections, one from each address.
func come(t *testing.T, g *gate, addresses ...string) (admitted []*connection) {
	t.Helper()
	for _, address := range addresses {
		here, there := net.Pipe()
		t.Cleanup(func() {
			_ = here.Close()
			_ = there.Close()
		})
		admitted = append(admitted, g.admit(piped{here, address}))
	}
	return admitted
}

// Of those that wait the one whose last request came first makes room, in all and of an address.
func TestAConnectionThatAsksMakesRoomLast(t *testing.T) {
	for name, c := range map[string]struct {
		most, ofCaller int
		from           string
	}{
		"in all":        {3, 3, "192.0.2.2"},
		"of an address": {4, 3, "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			closed := New(Options{Log: logr.Discard()}).closed
			g := newGate(nil, c.most, c.ofCaller, closed, logr.Discard())
			all := come(t, g, "192.0.2.1", "192.0.2.1", "192.0.2.1")
			defer Asking(all[0])()
			defer Answering(all[1])()
			defer Asking(all[1])() // it doesn't wait
			for _, makesRoom := range []*connection{all[2], all[0]} {
				if makesRoom.gone {
					t.Fatal("it made room before its turn")
				}
				if come(t, g, c.from); !makesRoom.gone {
					t.Fatal("another one made room")
				}
			}
			Asking(all[0])() // it is gone
		})
	}
}

// Whoever comes from the internet has a /64, whose addresses count as one. In a cluster each pod has an
// address, and all of them may have one /64.
func TestWhoCountsAsOneCaller(t *testing.T) {
	addresses := []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.1"}
	for name, c := range map[string]struct {
		make func(net.Listener, int, int, *prometheus.CounterVec, logr.Logger) *gate
		gone []bool
	}{
		"anybody": {func(ln net.Listener, most, ofCaller int, closed *prometheus.CounterVec, log logr.Logger) *gate {
			return NewGate(ln, Bounds{Connections: most, OfCaller: ofCaller}, closed, log).(*gate)
		}, []bool{true, false, false, true, false}},
		"in the cluster": {newGate, []bool{false, false, false, true, false}},
	} {
		closed := New(Options{Log: logr.Discard()}).closed
		var gone []bool
		for _, is := range come(t, c.make(nil, 10, 1, closed, logr.Discard()), addresses...) {
			gone = append(gone, is.gone)
		}
		if diff := cmp.Diff(c.gone, gone); diff != "" {
			t.Errorf("%s: which of %v made room (-want +got):\n%s", name, addresses, diff)
		}
	}
}
