package httpserver

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// Parked is a request that its handler left to be answered later. No goroutine waits for that and
// nothing is read of its connection: it costs this, and a file.
type Parked struct {
	server       *Server
	method, path string
	// stop is called once the server stops.
	stop func()
	// done ends that its connection answers a request.
	done func()

	mu sync.Mutex
	// conn is its connection; nil: the server still has that.
	conn net.Conn
	// closes is set where no further request is served on the connection.
	closes   bool
	answered bool
	// early is an answer that came before the connection.
	early *fasthttp.Response
}

// Park leaves a request to be answered later, by Answer and from any goroutine, which somebody must do
// at some time. Park must be the last thing that a handler does, and is for methods other than HEAD.
// stop is called once the server stops, and it may be called before Park returns: the request should
// then be answered at once. It must not wait.
//
// The connection counts as one that answers a request until then. It serves further requests after
// that where the server has ManyConnections and no TLS, and its caller hasn't sent the next one yet.
func (s *Server) Park(ctx *fasthttp.RequestCtx, stop func()) *Parked {
	p := &Parked{
		server: s, method: string(ctx.Method()), path: string(ctx.Path()), stop: stop, done: Answering(ctx.Conn()),
		closes: !s.opts.ManyConnections || s.opts.TLS != nil || ctx.Request.ConnectionClose() || !ctx.Request.Header.IsHTTP11(),
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(p.take)
	if s.parking.add(p) {
		stop()
	}
	return p
}

// take gets the connection, once the server has let go of it.
func (p *Parked) take(c net.Conn) {
	conn := c
	if hijacked, ok := c.(interface{ UnsafeConn() net.Conn }); ok {
		conn = hijacked.UnsafeConn()
	}
	more := hasMore(conn, c)
	p.mu.Lock()
	p.conn, p.closes = conn, p.closes || more
	answer := p.early
	p.mu.Unlock()
	if answer != nil {
		p.server.parking.add(p)
		p.send(conn, answer)
	}
}

// hasMore reports whether more than its request was read of a connection. A reader with nothing left
// reads the connection, whose time is over.
func hasMore(conn, reader net.Conn) bool {
	_ = conn.SetReadDeadline(time.Unix(1, 0))
	n, err := reader.Read(make([]byte, 1))
	_ = conn.SetReadDeadline(time.Time{})
	return n > 0 && err == nil
}

// Answer answers the request with what fill makes of a response. Only the first answer counts. It
// doesn't wait for the caller to take it.
func (p *Parked) Answer(fill func(*fasthttp.Response)) {
	answer := fasthttp.AcquireResponse()
	fill(answer)
	p.mu.Lock()
	if p.answered {
		p.mu.Unlock()
		fasthttp.ReleaseResponse(answer)
		return
	}
	p.answered = true
	conn := p.conn
	if conn == nil {
		p.early = answer
	}
	p.mu.Unlock()
	p.done()
	if conn == nil {
		// A connection that broke just now never comes.
		p.server.parking.remove(p)
		return
	}
	go p.send(conn, answer)
}

// Do does something that may answer the request. A panic is logged, and is the answer, as that of a
// handler is.
func (p *Parked) Do(f func()) {
	defer func() {
		if value := recover(); value != nil {
			p.server.panicked(value, p.method, p.path)
			p.Answer(func(r *fasthttp.Response) { p.server.refuse(r, fasthttp.StatusInternalServerError, panicSentence) })
		}
	}()
	f()
}

// send sends the answer, and has the connection's next request served.
func (p *Parked) send(conn net.Conn, answer *fasthttp.Response) {
	defer p.server.parking.remove(p)
	// A refusal isn't held back here: one beyond their rate ends its connection.
	closes := p.closes || answer.ConnectionClose() || p.server.parking.stops() || !p.server.slow.allows(answer.StatusCode())
	if closes {
		answer.SetConnectionClose()
	}
	err := conn.SetWriteDeadline(time.Now().Add(p.server.opts.WriteTimeout))
	if err == nil {
		_, err = answer.WriteTo(conn)
	}
	fasthttp.ReleaseResponse(answer)
	if err != nil || closes {
		_ = conn.Close()
		return
	}
	p.server.parking.serve(conn)
}

// parking has a server's parked requests.
type parking struct {
	server *Server
	// back accepts the connections of those that were answered.
	back    returned
	serving sync.WaitGroup

	mu       sync.Mutex
	parked   map[*Parked]struct{} // and those whose answers are being sent
	silent   map[*again]struct{}  // those that came back and sent nothing yet
	begun    bool
	stopping bool
	empty    chan struct{} // closed once the server stops and none is left
}

func newParking(s *Server) *parking {
	return &parking{
		server: s, parked: map[*Parked]struct{}{}, silent: map[*again]struct{}{}, empty: make(chan struct{}),
		back: returned{server: s, conns: make(chan net.Conn), closed: make(chan struct{})},
	}
}

// add takes in a request, and reports whether the server stops.
func (k *parking) add(p *Parked) (stopping bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.parked[p] = struct{}{}
	if !k.begun && !k.stopping {
		k.begun = true
		k.serving.Go(func() { _ = k.server.server.Serve(&k.back) })
	}
	return k.stopping
}

// remove forgets a request.
func (k *parking) remove(p *Parked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.parked, p)
	k.noteEmpty()
}

// noteEmpty ends the wait for parked requests. The lock is held.
func (k *parking) noteEmpty() {
	if !k.stopping || len(k.parked) > 0 {
		return
	}
	select {
	case <-k.empty:
	default:
		close(k.empty)
	}
}

func (k *parking) stops() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stopping
}

// Parked requests are answered over stopEach each when the server stops, a few every stopTick, and over stopTime
// at most: callers come to another server then, where thousands at a time would keep everybody else
// waiting. They mustn't wait for long either, since what else the program does ends after that.
const stopEach, stopTick, stopTime = 200 * time.Microsecond, 10 * time.Millisecond, time.Second

// stop has all parked requests answered, and ends the connections that wait for the next one. fasthttp would count
// those as new, and wait for them.
func (k *parking) stop() {
	k.mu.Lock()
	k.stopping = true
	parked, silent := slices.Collect(maps.Keys(k.parked)), slices.Collect(maps.Keys(k.silent))
	k.noteEmpty()
	k.mu.Unlock()
	for _, c := range silent {
		_ = c.Close()
	}
	if len(parked) == 0 {
		return
	}
	ticks := stopTicks(len(parked))
	for some := range slices.Chunk(parked, (len(parked)+ticks-1)/ticks) {
		for _, p := range some {
			p.stop()
		}
		if ticks--; ticks > 0 {
			<-time.After(stopTick)
		}
	}
}

// stopTicks is in how many parts so many parked requests are answered when the server stops.
func stopTicks(parked int) int {
	return 1 + int(min(time.Duration(parked)*stopEach, stopTime)/stopTick)
}

// wait waits until all parked requests are answered.
func (k *parking) wait(ctx context.Context) error {
	select {
	case <-k.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve has a connection's next request served.
func (k *parking) serve(conn net.Conn) {
	if before, is := conn.(*again); is {
		conn = before.Conn
	}
	c := &again{Conn: conn, parking: k}
	k.mu.Lock()
	k.silent[c] = struct{}{}
	stopping := k.stopping
	k.mu.Unlock()
	if stopping {
		_ = c.Close()
		return
	}
	select {
	case k.back.conns <- c:
	case <-k.back.closed:
		_ = c.Close()
	}
}

// heard notes that a connection that came back is silent no longer.
func (k *parking) heard(c *again) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.silent, c)
}

// end ends the serving of connections that come back.
func (k *parking) end() {
	_ = k.back.Close()
	k.serving.Wait()
}

// again is a connection that is served again. fasthttp takes it for a new one, to which it gives the
// time of a request for the first byte, and not the time that a kept one may be silent. It is another
// one each time, since fasthttp may not have forgotten the last one yet.
type again struct {
	net.Conn
	parking *parking
	// deadlines is how many were set: the first one for the first byte, and the second once that came.
	deadlines int
}

// SetReadDeadline implements net.Conn.
func (c *again) SetReadDeadline(t time.Time) error {
	switch c.deadlines++; c.deadlines {
	case 1:
		opts := c.parking.server.opts
		t = t.Add(max(opts.IdleTimeout-opts.ReadTimeout, 0))
	case 2:
		c.parking.heard(c)
	}
	return c.Conn.SetReadDeadline(t)
}

// Close implements net.Conn.
func (c *again) Close() error {
	c.parking.heard(c)
	return c.Conn.Close()
}

// CameBack reports whether a parked request was answered on a request's connection before.
func CameBack(ctx *fasthttp.RequestCtx) bool {
	_, is := ctx.Conn().(*again)
	return is
}

// returned is the listener of those connections.
type returned struct {
	server *Server
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener.
func (l *returned) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *returned) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *returned) Addr() net.Addr { return l.server.Addr() }
