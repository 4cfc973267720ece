package httpserver

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"
)

const parkRequest = "GET /park HTTP/1.1\r\nHost: x\r\n\r\n"

// parks is a server that parks requests, and what it has parked.
type parks struct {
	*Server
	parked chan *Parked
	// stops counts who was stopped because the server stops, the first at firstStop and the last at lastStop.
	stops               atomic.Int32
	firstStop, lastStop atomic.Pointer[time.Time]
	stop                func() error
}

// parkingServer starts one; then is what the handler does after it parked.
func parkingServer(t *testing.T, opts Options, then func(*Parked)) *parks {
	t.Helper()
	opts.Address, opts.Log = "127.0.0.1:0", logr.Discard()
	s := &parks{Server: New(opts), parked: make(chan *Parked, 100)}
	s.Handle(http.MethodGet, "/park", func(ctx *fasthttp.RequestCtx) {
		var p *Parked
		var ready sync.Mutex
		ready.Lock()
		defer ready.Unlock()
		p = s.Park(ctx, func() {
			now := time.Now()
			s.stops.Add(1)
			s.firstStop.CompareAndSwap(nil, &now)
			s.lastStop.Store(&now)
			go func() {
				ready.Lock()
				defer ready.Unlock()
				p.Answer(says("stopped"))
			}()
		})
		s.parked <- p
		if then != nil {
			then(p)
		}
	})
	_, s.stop = start(t, s.Server)
	return s
}

func says(what string) func(*fasthttp.Response) {
	return func(r *fasthttp.Response) { r.SetBodyString(what) }
}

// client is a connection that asks for what is parked.
type client struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

func parkOn(t *testing.T, s *parks) *client {
	t.Helper()
	c := &client{Conn: stranger(t, s.Server, "127.0.0.1", false), t: t}
	c.reader = bufio.NewReader(c)
	c.ask(parkRequest)
	return c
}

func (c *client) ask(text string) {
	c.t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// answer is the next answer's status and body, and whether the connection ends with it.
func (c *client) answer() (status int, body string, closes bool) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	res, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Close
}

// want checks the next answer.
func (c *client) want(status int, body string, closes bool) {
	c.t.Helper()
	if s, b, e := c.answer(); s != status || b != body || e != closes {
		c.t.Errorf("answered %d %q, which ends the connection: %t; want %d %q and %t", s, b, e, status, body, closes)
	}
	if closes {
		closedBy(c.t, c.Conn)
	}
}

// settled waits until a server keeps so many connections, and no parked request.
func (s *parks) settled(t *testing.T, connections int) {
	t.Helper()
	for began := time.Now(); ; <-time.After(time.Millisecond) {
		g := s.ln.(*gate)
		g.mu.Lock()
		open, waiting := g.open, g.waiting.Len()
		g.mu.Unlock()
		s.parking.mu.Lock()
		parked := len(s.parking.parked)
		s.parking.mu.Unlock()
		if open == connections && waiting == connections && parked == 0 {
			return
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%d connections are open, of which %d wait, and %d requests are parked; want %d and none", open, waiting, parked, connections)
		}
	}
}

func TestAParkedRequestIsAnsweredOnceAndItsConnectionServesOn(t *testing.T) {
	s := parkingServer(t, Options{ManyConnections: true}, nil)
	c := parkOn(t, s)
	for i := range 20 {
		p := <-s.parked
		if _, wrapped := connOf(p).(*again); wrapped != (i > 0) {
			t.Fatalf("request %d came on a %T", i, connOf(p))
		} else if wrapped {
			if _, twice := connOf(p).(*again).Conn.(*again); twice {
				t.Fatal("a connection that comes back is wrapped anew each time")
			}
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { p.Answer(says("here")) })
		}
		all.Wait()
		c.want(200, "here", false)
		c.ask(parkRequest)
	}
	(<-s.parked).Answer(says("last"))
	c.want(200, "last", false)
	c.ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	c.want(200, "ok\n", false)
	s.settled(t, 1)
	_ = c.Close()
	s.settled(t, 0)
}

// connOf is a parked request's connection, once the server has let go of it.
func connOf(p *Parked) net.Conn {
	for ; ; <-time.After(time.Millisecond) {
		p.mu.Lock()
		c := p.conn
		p.mu.Unlock()
		if c != nil {
			return c
		}
	}
}

func TestAnAnswerMayComeBeforeTheServerLetsGoOfTheConnection(t *testing.T) {
	s := parkingServer(t, Options{ManyConnections: true}, func(p *Parked) {
		p.Answer(says("at once"))
		p.Answer(says("twice"))
	})
	c := parkOn(t, s)
	for range 50 {
		c.want(200, "at once", false)
		c.ask(parkRequest)
	}
	c.want(200, "at once", false)
	s.settled(t, 1)
}

func TestWhoIsParkedIsAnsweredWhenTheServerStops(t *testing.T) {
	const many = 50
	s := parkingServer(t, Options{ManyConnections: true}, nil)
	callers := make([]*client, many)
	for i := range callers {
		callers[i] = parkOn(t, s)
		<-s.parked
	}
	began := time.Now()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > DefaultShutdownTimeout/2 {
		t.Errorf("it stopped after %s, want at once", took)
	}
	for _, c := range callers {
		c.want(200, "stopped", true)
	}
	if n := s.stops.Load(); n != many {
		t.Errorf("%d were stopped because of it, want %d", n, many)
	}
	s.settled(t, 0)
}

// Thousands that come to another server at once would have all its other callers wait.
func TestThoseWhoAreParkedAreAnsweredOneAfterTheOtherWhenTheServerStops(t *testing.T) {
	for parked, want := range map[int]time.Duration{1: 0, 3000: 600 * time.Millisecond, 20000: time.Second} {
		if got := time.Duration(stopTicks(parked)-1) * stopTick; got != want {
			t.Errorf("%d are answered over %s, want %s", parked, got, want)
		}
	}
	const many = 200
	s := parkingServer(t, Options{ManyConnections: true}, nil)
	for range many {
		parkOn(t, s)
		<-s.parked
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if took := s.lastStop.Load().Sub(*s.firstStop.Load()); took < many*stopEach || s.stops.Load() != many {
		t.Errorf("%d were stopped within %s, want %d within %s at least", s.stops.Load(), took, many, many*stopEach)
	}
}

func TestWhatIsParkedWhileTheServerStopsIsAnsweredAtOnce(t *testing.T) {
	stopping := make(chan struct{})
	s := &parks{Server: New(Options{Address: "127.0.0.1:0", Log: logr.Discard(), ManyConnections: true}), parked: make(chan *Parked, 1)}
	s.Handle(http.MethodGet, "/park", func(ctx *fasthttp.RequestCtx) {
		close(stopping)
		for !s.parking.stops() {
			<-time.After(time.Millisecond)
		}
		stopped := make(chan struct{})
		p := s.Park(ctx, func() { close(stopped) })
		<-stopped
		p.Answer(says("stopped"))
	})
	_, s.stop = start(t, s.Server)
	c := parkOn(t, s)
	<-stopping
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	c.want(200, "stopped", true)
}

// It is still there when the answer comes.
func TestAServerWaitsForWhoIsParked(t *testing.T) {
	s := &parks{Server: New(Options{Address: "127.0.0.1:0", Log: logr.Discard(), ManyConnections: true}), parked: make(chan *Parked, 1)}
	over := make(chan struct{})
	s.Handle(http.MethodGet, "/park", func(ctx *fasthttp.RequestCtx) { s.parked <- s.Park(ctx, func() { close(over) }) })
	_, s.stop = start(t, s.Server)
	c := parkOn(t, s)
	p := <-s.parked
	_ = connOf(p)
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	<-over
	select {
	case err := <-stopped:
		t.Fatalf("it stopped before a parked request was answered: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	p.Answer(says("at last"))
	c.want(200, "at last", true)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Nor does it wait for a connection on which nobody asks for anything.
func TestAServerStopsAtOnceThoughConnectionsCameBack(t *testing.T) {
	s := parkingServer(t, Options{ManyConnections: true}, nil)
	var callers []*client
	for range 10 {
		c := parkOn(t, s)
		callers = append(callers, c)
		(<-s.parked).Answer(says("here"))
		c.want(200, "here", false)
	}
	s.settled(t, len(callers))
	began := time.Now()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > DefaultShutdownTimeout/2 {
		t.Errorf("it stopped after %s, want at once", took)
	}
	for _, c := range callers {
		closedBy(t, c.Conn)
	}
	s.settled(t, 0)
	if n := len(s.parking.silent); n != 0 {
		t.Errorf("%d connections are kept, want none", n)
	}
}

// Nobody waits for one that is never answered for longer than for other requests.
func TestAServerStopsThoughARequestStaysParked(t *testing.T) {
	s := New(Options{Address: "127.0.0.1:0", Log: logr.Discard(), ManyConnections: true, ShutdownTimeout: 100 * time.Millisecond})
	parked := make(chan *Parked, 1)
	s.Handle(http.MethodGet, "/park", func(ctx *fasthttp.RequestCtx) { parked <- s.Park(ctx, func() {}) })
	_, stop := start(t, s)
	c := parkOn(t, &parks{Server: s})
	p := <-parked
	_ = connOf(p)
	if err := stop(); err != nil {
		t.Error(err)
	}
	p.Answer(says("late"))
	c.want(200, "late", true)
}

func TestACallerWhoHasGoneLeavesNothing(t *testing.T) {
	s := parkingServer(t, Options{ManyConnections: true}, nil)
	for _, reset := range []bool{false, true} {
		c := parkOn(t, s)
		p := <-s.parked
		_ = connOf(p)
		if reset {
			_ = c.Conn.(*net.TCPConn).SetLinger(0)
		}
		_ = c.Close()
		p.Answer(says("to nobody"))
		s.settled(t, 0)
	}
}

func TestAConnectionOfWhichMoreWasReadEndsWithTheAnswer(t *testing.T) {
	for name, opts := range map[string]Options{"few connections": {}, "many connections": {ManyConnections: true}} {
		t.Run(name, func(t *testing.T) {
			s := parkingServer(t, opts, nil)
			c := &client{Conn: stranger(t, s.Server, "127.0.0.1", false), t: t}
			c.reader = bufio.NewReader(c)
			c.ask(parkRequest + parkRequest)
			(<-s.parked).Answer(says("first"))
			c.want(200, "first", true)
			s.settled(t, 0)
			if len(s.parked) > 0 {
				t.Error("both were parked")
			}
		})
	}
}

func TestWhoseConnectionIsKeptAfterItWasParked(t *testing.T) {
	many := Options{ManyConnections: true}
	for name, c := range map[string]struct {
		opts    Options
		request string
		closes  bool
	}{
		"of many connections": {many, parkRequest, false},
		"of few connections":  {Options{}, parkRequest, true},
		"who wants it closed": {many, "GET /park HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", true},
		"of an earlier HTTP":  {many, "GET /park HTTP/1.0\r\nHost: x\r\n\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := parkingServer(t, c.opts, nil)
			who := &client{Conn: stranger(t, s.Server, "127.0.0.1", false), t: t}
			who.reader = bufio.NewReader(who)
			who.ask(c.request)
			(<-s.parked).Answer(says("here"))
			who.want(200, "here", c.closes)
		})
	}
}

func TestAPanicOverAParkedRequestIsItsAnswer(t *testing.T) {
	counts := prometheus.NewRegistry()
	var panics atomic.Int32
	opts := Options{ManyConnections: true, Registerer: counts, OnPanic: func(any, []byte) { panics.Add(1) }}
	s := parkingServer(t, opts, nil)
	c := parkOn(t, s)
	(<-s.parked).Do(func() { panic("oh dear") })
	c.want(500, `{"error":"`+panicSentence+`"}`, false)
	if n := refusals(t, counts)["500"]; n != 1 || panics.Load() != 1 {
		t.Errorf("%v answers with 500 and %d panics are counted, want 1 of each", n, panics.Load())
	}
	c.ask(parkRequest)
	(<-s.parked).Do(func() {})
	_ = s.stop()
	c.want(200, "stopped", true)
}

// The handler's own panic is answered at once, and what somebody answers later doesn't matter.
func TestAHandlerThatPanicsHasParkedNothing(t *testing.T) {
	s := parkingServer(t, Options{ManyConnections: true}, func(*Parked) { panic("oh dear") })
	c := parkOn(t, s)
	c.want(500, `{"error":"`+panicSentence+`"}`, false)
	(<-s.parked).Answer(says("late"))
	c.ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	c.want(200, "ok\n", false)
	s.settled(t, 1)
}

// A parked request counts as one that is answered: its connection makes no room.
func TestAParkedConnectionStays(t *testing.T) {
	const most = 3
	s := parkingServer(t, Options{ManyConnections: true, MaxConnections: most, MaxConnectionsPerCaller: most}, nil)
	c := parkOn(t, s)
	(<-s.parked).Answer(says("first"))
	c.want(200, "first", false)
	c.ask(parkRequest)
	p := <-s.parked
	_ = connOf(p)
	var others []net.Conn
	for range 2 * most {
		others = append(others, stranger(t, s.Server, "127.0.0.1", true))
	}
	for _, other := range others[:len(others)-most+1] {
		closedBy(t, other)
	}
	p.Answer(says("here"))
	c.want(200, "here", false)
	s.settled(t, most)
	for range most {
		others = append(others, stranger(t, s.Server, "127.0.0.1", true))
	}
	closedBy(t, c.Conn)
}

// A kept connection may be silent for as long as after another answer.
func TestAConnectionThatCameBackMayBeSilent(t *testing.T) {
	const read, idle = time.Second, 4 * time.Second
	s := parkingServer(t, Options{ManyConnections: true, ReadTimeout: read, IdleTimeout: idle}, nil)
	c := parkOn(t, s)
	p, began := <-s.parked, time.Now()
	p.Answer(says("here"))
	c.want(200, "here", false)
	closedBy(t, c.Conn)
	if took := time.Since(began); took < idle || took > 2*idle {
		t.Errorf("it was closed after %s, want after %s", took, idle)
	}
	// And no request may take longer than another.
	slow := parkOn(t, s)
	(<-s.parked).Answer(says("here"))
	slow.want(200, "here", false)
	began = time.Now()
	slow.ask("GET /pa")
	if status, _, _ := slow.answer(); status != http.StatusRequestTimeout || time.Since(began) > idle-read {
		t.Errorf("half a request is answered with %d after %s, want 408 after %s", status, time.Since(began), read)
	}
}

func TestARefusalBeyondTheirRateEndsAParkedConnection(t *testing.T) {
	s := parkingServer(t, Options{ManyConnections: true}, nil)
	s.slow.limiter = rate.NewLimiter(0.001, 1)
	c := parkOn(t, s)
	refuse := func(r *fasthttp.Response) { Error(r, http.StatusForbidden, "no") }
	(<-s.parked).Answer(refuse)
	c.want(403, `{"error":"no"}`, false)
	c.ask(parkRequest)
	(<-s.parked).Answer(refuse)
	c.want(403, `{"error":"no"}`, true)
}

// A caller who takes nothing of its answer keeps nobody who answers waiting, and is cut off in time.
func TestWhoAnswersWaitsForNoCaller(t *testing.T) {
	s := parkingServer(t, Options{ManyConnections: true, WriteTimeout: 500 * time.Millisecond}, nil)
	_ = parkOn(t, s)
	p := <-s.parked
	_ = connOf(p)
	p.Answer(says(strings.Repeat("x", 16<<20)))
	s.parking.mu.Lock()
	if len(s.parking.parked) != 1 {
		t.Error("who answered waited until that was taken")
	}
	s.parking.mu.Unlock()
	s.settled(t, 0)
}

func TestAServerStopsThatIsToldToBeforeItServes(t *testing.T) {
	for range 20 {
		s := New(Options{Address: "127.0.0.1:0", Log: logr.Discard()})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Start(ctx); err != nil {
			t.Log(err) // it couldn't even listen
		}
	}
}
