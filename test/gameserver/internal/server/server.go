// Package server is the test game server: numbered messages and raw echo over
// TCP and UDP, an HTTP page with the number of players, slow boots and crashes.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	spread "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrCrash is what Run returns when it crashes as it was told to.
var ErrCrash = errors.New("crashed on request")

// Options say what a server listens on and how it misbehaves.
type Options struct {
	// ID is the identity told in replies.
	ID string
	// TCP and UDP are addresses that answer numbered messages, EchoTCP and
	// EchoUDP those that send back what they get.
	TCP, UDP, EchoTCP, EchoUDP []string
	// HTTPAddress serves /players, /healthz, /stats and /crash; empty is none.
	HTTPAddress string
	// SDK is the URL of the sidecar to tell how many play; empty is none.
	SDK string
	// SDKReady tells it when the game ports are open.
	SDKReady bool
	// A2S is the address that answers A2S_INFO; empty is none.
	A2S string
	// BootDelay is the time from the start until the game ports open.
	BootDelay time.Duration
	// BootSpread is up to how much longer that is, by chance.
	BootSpread time.Duration
	// CrashFirst is how many starts end after BootDelay, before anything
	// listens. They are counted in CrashFile.
	CrashFirst int
	CrashFile  string
	// CrashAfter ends the server this long after it listened; 0 is never.
	CrashAfter time.Duration
	// Linger is how long sessions may go on after the context has ended.
	Linger time.Duration
}

// Server is a running server.
type Server struct {
	id, boot  string
	started   time.Time
	listening atomic.Int64
	crashed   chan struct{}
	crash     func()

	// sessions ends when the sessions are to end, later than the listeners.
	sessions context.Context
	loops    sync.WaitGroup
	counters counters
	addrs    Addresses
}

// Addresses are those that a server came to listen on, in the order of its
// options.
type Addresses struct {
	TCP, UDP, EchoTCP, EchoUDP []string
	HTTP                       string
}

// Run serves until the context ends or the server crashes.
func Run(ctx context.Context, o Options) error {
	s, err := Start(ctx, o)
	if err != nil {
		return err
	}
	return s.Wait()
}

// Start begins to serve and returns once the game ports are open. Wait waits
// for the end.
func Start(ctx context.Context, o Options) (*Server, error) {
	sessions, endSessions := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{id: o.ID, boot: rand.Text(), started: time.Now(), crashed: make(chan struct{}), sessions: sessions}
	s.crash = sync.OnceFunc(func() { close(s.crashed) })

	ctx, stop := context.WithCancelCause(ctx)
	fail := func(err error) (*Server, error) {
		stop(err)
		endSessions()
		s.loops.Wait()
		return nil, err
	}
	if o.HTTPAddress != "" {
		if err := s.serveHTTP(ctx, o); err != nil {
			return fail(err)
		}
	}
	select {
	case <-time.After(o.BootDelay + spread.N(o.BootSpread+1)):
	case <-ctx.Done():
		return fail(fmt.Errorf("boot: %w", context.Cause(ctx)))
	}
	if o.CrashFirst > 0 {
		crash, err := countCrash(o.CrashFile, o.CrashFirst)
		if err != nil {
			return fail(err)
		}
		if crash {
			return fail(ErrCrash)
		}
	}
	sockets, err := openSockets(ctx, o)
	if err != nil {
		return fail(err)
	}
	s.listening.Store(time.Now().UnixNano())
	s.serveSockets(sockets)
	if o.A2S != "" {
		if err := s.serveA2S(ctx, o.A2S); err != nil {
			sockets.close()
			return fail(err)
		}
	}
	if o.SDKReady {
		if _, _, err := callSDK(ctx, http.MethodPost, o.SDK+"/ready", []byte("{}")); err != nil {
			return fail(fmt.Errorf("tell the sidecar that the game is ready: %w", err))
		}
	}
	if o.SDK != "" {
		s.loops.Go(func() { s.reportPlayers(s.sessions, o.SDK) })
	}
	go s.end(ctx, o, sockets, stop, endSessions)
	return s, nil
}

// end waits for a reason to end, closes the listeners, and lets the sessions
// linger unless the server crashed.
func (s *Server) end(ctx context.Context, o Options, sockets *sockets, stop context.CancelCauseFunc, endSessions func()) {
	if o.CrashAfter > 0 {
		timer := time.AfterFunc(o.CrashAfter, s.crash)
		defer timer.Stop()
	}
	select {
	case <-ctx.Done():
		sockets.closeListeners()
		s.waitForPlayers(o.Linger)
	case <-s.crashed:
		stop(ErrCrash)
	}
	endSessions()
	sockets.close()
}

// waitForPlayers returns when nobody plays any more, or after linger.
func (s *Server) waitForPlayers(linger time.Duration) {
	if linger <= 0 {
		return
	}
	deadline := time.After(linger)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.counters.playing(time.Now()) > 0 {
		select {
		case <-tick.C:
		case <-deadline:
			return
		case <-s.crashed:
			return
		}
	}
}

// Wait returns when the server has ended: nil after its context, ErrCrash after
// a crash.
func (s *Server) Wait() error {
	<-s.sessions.Done()
	s.loops.Wait()
	select {
	case <-s.crashed:
		return ErrCrash
	default:
		return nil
	}
}

// Crash ends the server at once.
func (s *Server) Crash() { s.crash() }

// Addresses are those that the server listens on.
func (s *Server) Addresses() Addresses { return s.addrs }

func (s *Server) serveHTTP(ctx context.Context, o Options) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.HTTPAddress)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	s.addrs.HTTP = listener.Addr().String()
	web := &http.Server{Handler: s.handler(o.SDK), ReadHeaderTimeout: 5 * time.Second}
	s.loops.Go(func() {
		// Serve returns only once the server is closed, and then always an error.
		_ = web.Serve(listener)
	})
	s.loops.Go(func() {
		select {
		case <-s.sessions.Done():
		case <-s.crashed:
		}
		_ = web.Close()
	})
	return nil
}
