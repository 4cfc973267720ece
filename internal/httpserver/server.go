// Package httpserver is the HTTP server of Dormouse's programs: bounded bodies
// and times, a panic that costs one answer rather than the process, and the
// paths that Kubernetes and Prometheus ask for.
//
// It knows nothing of what the programs serve. Handlers are registered before
// Start and share no state through it.
package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// Paths that each server answers by itself.
const (
	HealthPath  = "/healthz"
	ReadyPath   = "/readyz"
	MetricsPath = "/metrics"
)

// Defaults of Options.
const (
	DefaultMaxBodyBytes    = 64 << 10
	DefaultReadTimeout     = 10 * time.Second
	DefaultWriteTimeout    = 30 * time.Second
	DefaultIdleTimeout     = 2 * time.Minute
	DefaultShutdownTimeout = 5 * time.Second

	DefaultMaxConnections          = 1024
	DefaultMaxConnectionsPerCaller = 64
)

// mostFiles bounds the number of open files that is assumed.
const mostFiles = 1 << 20

// Options are how a server listens and what it answers by itself. Zero values mean the defaults
// above.
type Options struct {
	// Address is the address to listen on, such as ":8080".
	Address string
	// MaxBodyBytes bounds a request's body; a larger one is answered with 413. HandleLarge sets
	// other bounds.
	MaxBodyBytes int
	// ManyConnections is set where thousands of connections wait at a time: they return their
	// buffers then, for one more system call a request. By default MaxConnections is then three
	// quarters of the files that the process may open, and MaxConnectionsPerCaller a quarter of
	// that.
	ManyConnections bool
	// MaxConnections and MaxConnectionsPerCaller bound the connections, in total and of one
	// address. Beyond them the connection that has waited longest for its caller makes room.
	// Where none waits the new one is closed.
	MaxConnections, MaxConnectionsPerCaller int
	// ReadTimeout bounds the reading of one request.
	ReadTimeout time.Duration
	// WriteTimeout bounds the writing of one answer.
	WriteTimeout time.Duration
	// IdleTimeout is how long a kept connection may be silent.
	IdleTimeout time.Duration
	// ShutdownTimeout is how long requests under way may take once the server
	// is told to stop.
	ShutdownTimeout time.Duration
	// TLS has the server speak HTTPS; nil: it speaks HTTP.
	TLS *tls.Config
	// Healthy returns what is wrong with the process; nil: nothing ever is.
	Healthy func() error
	// Ready returns why the process should get no traffic; nil: it always should.
	Ready func() error
	// Gatherer has the metrics at MetricsPath; nil: there is no such path.
	Gatherer prometheus.Gatherer
	// AroundScrape is given what gathers and writes the metrics, and calls it once before it returns; nil: that is
	// called as it is.
	AroundScrape func(scrape func())
	// Registerer gets dormouse_http_refused_total, which counts the requests that
	// no handler answered, and dormouse_http_closed_connections_total, which counts
	// the connections over a bound; nil: they aren't counted.
	Registerer prometheus.Registerer
	// Log gets panics and the server's own messages.
	Log logr.Logger
	// OnPanic is called with each recovered panic, in addition to the log; may be nil.
	OnPanic func(value any, stack []byte)
}

// Server is an HTTP server that runs from Start until its context ends. It is a
// manager.Runnable that runs on each replica.
type Server struct {
	opts    Options
	routes  map[string]map[string]fasthttp.RequestHandler
	large   map[string]large
	server  *fasthttp.Server
	ln      net.Listener
	refused *prometheus.CounterVec
	closed  *prometheus.CounterVec
	slow    *slowdown
	parking *parking
}

// New makes a server; it listens once Listen or Start is called.
func New(opts Options) *Server {
	opts.MaxBodyBytes = orDefault(opts.MaxBodyBytes, DefaultMaxBodyBytes)
	opts.ReadTimeout = orDefault(opts.ReadTimeout, DefaultReadTimeout)
	opts.WriteTimeout = orDefault(opts.WriteTimeout, DefaultWriteTimeout)
	opts.IdleTimeout = orDefault(opts.IdleTimeout, DefaultIdleTimeout)
	opts.ShutdownTimeout = orDefault(opts.ShutdownTimeout, DefaultShutdownTimeout)
	most, ofCaller := DefaultMaxConnections, DefaultMaxConnectionsPerCaller
	if opts.ManyConnections {
		// With masqueraded pod addresses all callers of a node have one address.
		most = openFiles() / 4 * 3
		ofCaller = most / 4
	}
	opts.MaxConnections = orDefault(opts.MaxConnections, most)
	opts.MaxConnectionsPerCaller = orDefault(opts.MaxConnectionsPerCaller, ofCaller)

	s := &Server{
		opts: opts, slow: newSlowdown(), routes: map[string]map[string]fasthttp.RequestHandler{}, large: map[string]large{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_http_refused_total",
			Help: "HTTP requests that were refused unread or had no handler, by the status code of the answer.",
		}, []string{"code"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_http_closed_connections_total",
			Help: "HTTP connections that were closed because there were too many, in all (too_many) or of one address (too_many_of_caller).",
		}, []string{"reason"}),
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(s.refused, s.closed)
	}
	s.server = &fasthttp.Server{
		Handler:            s.serve,
		ErrorHandler:       s.unread,
		ReadTimeout:        opts.ReadTimeout,
		WriteTimeout:       opts.WriteTimeout,
		IdleTimeout:        opts.IdleTimeout,
		MaxRequestBodySize: opts.MaxBodyBytes,
		HeaderReceived:     s.bounds,
		ReduceMemoryUsage:  opts.ManyConnections,
		// Otherwise multipart forms are parsed into files on disk.
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		// Headers may hold tokens, and fasthttp would log the request's start.
		SecureErrorLogMessage: true,
		CloseOnShutdown:       true,
		KeepHijackedConns:     true, // they are parked
		Logger:                logger{opts.Log},
	}
	s.parking = newParking(s)
	s.Handle(fasthttp.MethodGet, HealthPath, check(opts.Healthy))
	s.Handle(fasthttp.MethodGet, ReadyPath, check(opts.Ready))
	if opts.Gatherer != nil {
		s.Handle(fasthttp.MethodGet, MetricsPath, metrics(opts.Gatherer, opts.AroundScrape))
	}
	return s
}

// Handle registers a handler for a method and an exact path. It must be called before Start. A
// handler for GET handles HEAD, too.
func (s *Server) Handle(method, path string, handler fasthttp.RequestHandler) {
	if s.routes[path] == nil {
		s.routes[path] = map[string]fasthttp.RequestHandler{}
	}
	s.routes[path][method] = handler
}

// large is a path with a bound of its own.
type large struct {
	maxBody int
	admit   func(*fasthttp.RequestHeader) bool
}

// HandleLarge is Handle for a path whose bodies may be larger than others, up to maxBody bytes.
// More than Options.MaxBodyBytes is read only of requests that admit accepts by their header,
// so that not everybody can fill the memory. admit is called before each request's body is
// read, must be quick, and doesn't replace the handler's own checks.
func (s *Server) HandleLarge(method, path string, maxBody int, admit func(*fasthttp.RequestHeader) bool, handler fasthttp.RequestHandler) {
	s.Handle(method, path, handler)
	s.large[path] = large{maxBody, admit}
}

// bounds returns the bounds of a request by its header.
func (s *Server) bounds(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if len(s.large) == 0 {
		return fasthttp.RequestConfig{}
	}
	path, _, _ := bytes.Cut(header.RequestURI(), []byte("?"))
	l, ok := s.large[string(path)]
	// A length within the bounds, or none at all, needs no permission.
	if !ok || header.ContentLength() <= s.opts.MaxBodyBytes && header.ContentLength() >= 0 || !l.admit(header) {
		return fasthttp.RequestConfig{}
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: l.maxBody}
}

// Listen opens the server's port, so that a port in use is found out before anything else is
// started. Otherwise Start opens it.
func (s *Server) Listen(ctx context.Context) error {
	if s.ln != nil {
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", s.opts.Address)
	if err != nil {
		return fmt.Errorf("listening for HTTP on %q: %w", s.opts.Address, err)
	}
	s.ln = newGate(ln, s.opts.MaxConnections, s.opts.MaxConnectionsPerCaller, s.closed, s.opts.Log)
	if s.opts.TLS != nil {
		s.ln = tls.NewListener(s.ln, s.opts.TLS)
	}
	return nil
}

// openFiles is how many files the process may open.
func openFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > mostFiles {
		return mostFiles
	}
	return int(limit.Cur)
}

// Addr is the address that Listen opened; nil before.
func (s *Server) Addr() net.Addr {
	if s.ln == nil {
		return nil
	}
	return s.ln.Addr()
}

// Start serves until the context ends and the requests under way are answered
// or ShutdownTimeout has passed.
func (s *Server) Start(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- s.server.Serve(s.ln) }()

	select {
	case err := <-failed:
		return fmt.Errorf("serving HTTP on %s: %w", s.ln.Addr(), err)
	case <-ctx.Done():
	}
	// The caller's context has ended: that is why the server stops.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.ShutdownTimeout)
	defer cancel()
	// Who is answered because of the end must not come back here.
	_ = s.ln.Close()
	<-failed
	s.parking.stop()
	err := s.server.ShutdownWithContext(grace)
	if err == nil {
		err = s.parking.wait(grace)
	}
	s.parking.end()
	if errors.Is(err, context.DeadlineExceeded) {
		s.opts.Log.Info("HTTP requests were still under way when the server stopped", "address", s.ln.Addr().String())
		err = nil
	}
	if err != nil {
		return fmt.Errorf("stopping HTTP on %s: %w", s.ln.Addr(), err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: the server runs on each
// replica.
func (*Server) NeedLeaderElection() bool { return false }

func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	done := Answering(ctx.Conn())
	// This runs last, after a panic is answered, too.
	defer func() {
		// A refused request that is held back may make room.
		done()
		s.slow.wait(ctx)
	}()
	defer func() {
		if value := recover(); value != nil {
			s.panicked(value, string(ctx.Method()), string(ctx.Path()))
			ctx.Hijack(nil) // though it was parked
			ctx.Response.Reset()
			s.refuse(&ctx.Response, fasthttp.StatusInternalServerError, panicSentence)
		}
	}()

	methods, ok := s.routes[string(ctx.Path())]
	if !ok {
		s.refuse(&ctx.Response, fasthttp.StatusNotFound, "there is nothing at this path")
		return
	}
	method := string(ctx.Method())
	handler, ok := methods[method]
	if !ok && method == fasthttp.MethodHead {
		handler, ok = methods[fasthttp.MethodGet]
	}
	if !ok {
		allowed := make([]string, 0, len(methods))
		for m := range methods {
			allowed = append(allowed, m)
		}
		slices.Sort(allowed)
		ctx.Response.Header.Set(fasthttp.HeaderAllow, strings.Join(allowed, ", "))
		s.refuse(&ctx.Response, fasthttp.StatusMethodNotAllowed, "this path takes "+strings.Join(allowed, ", ")+" only")
		return
	}
	handler(ctx)
}

// panicSentence answers a request whose handler panicked.
const panicSentence = "something went wrong here; the log tells what"

// panicked tells of a panic that was just recovered.
func (s *Server) panicked(value any, method, path string) {
	stack := debug.Stack()
	s.opts.Log.Error(fmt.Errorf("panic: %v", value), "An HTTP handler panicked", "method", method, "path", path, "stack", string(stack))
	if s.opts.OnPanic != nil {
		s.opts.OnPanic(value, stack)
	}
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// logger takes fasthttp's own messages: broken connections and the like, which are the client's
// problem and not ours.
type logger struct{ log logr.Logger }

func (l logger) Printf(format string, args ...any) {
	l.log.V(1).Info("HTTP server: " + fmt.Sprintf(format, args...))
}
