// Package files serves one directory, a game server's disk, over SFTP. It owns the logins, their
// bounds, and what a client may do to a file. It speaks nothing of SSH but SFTP: no shell, no
// commands, no forwarding. It must not use a path other than through os.Root, but for the host
// key and the users, which are not of the directory.
package files

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/pkg/sftp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"
)

const (
	// introductionTimeout bounds the time from a connection to its PROXY header, which comes at once.
	introductionTimeout = 10 * time.Second
	// handshakeTimeout bounds the time from then to a login. A person may compare the host key and look for a
	// password meanwhile: it is what OpenSSH's server gives by default.
	handshakeTimeout = 2 * time.Minute
	// lastLogins is for how long logins may still come once the server is to end.
	lastLogins = 10 * time.Second
	// handshakesOfAddress and handshakesPerSession bound the connections without a login.
	handshakesOfAddress  = 4
	handshakesPerSession = 4
	// acceptAgain is how long nothing is accepted after an error, such as too many open files.
	acceptAgain = 100 * time.Millisecond
)

// Server is an SFTP server.
type Server struct {
	opts    Options
	log     logr.Logger
	metrics *metrics
	disk    *disk
	users   users
	hostKey ssh.Signer

	guard *guard
	turns *turns
	// introductions are the connections of which nobody knows yet where the client is.
	introductions *lobby
	// lobby has those without a login, and sessions bounds those with one.
	lobby    *lobby
	sessions *places
	// These are the constants of their names.
	introductionTimeout, handshakeTimeout, lastLogins time.Duration
	// late is closed once the time to drain is over.
	late    chan struct{}
	uploads uploadBounds
	// drains is uploadDrains.
	drains int
	// measuring are measurements of the disk, which go on when those who began them are gone.
	measuring sync.WaitGroup
}

// extensions are what the library says for all servers of a process that they can do.
var extensions = sync.OnceValue(func() error {
	return sftp.SetSFTPExtensions("posix-rename@openssh.com")
})

// New makes a server. It fails without the directory, or without a host key.
func New(opts Options, registry prometheus.Registerer, log logr.Logger) (*Server, error) {
	if err := extensions(); err != nil {
		return nil, fmt.Errorf("setting SFTP's extensions: %w", err)
	}
	hostKey, err := readHostKey(opts.HostKey)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(opts.Users); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("--users: %q is no directory", opts.Users)
	}
	d, err := openDisk(opts)
	if err != nil {
		return nil, fmt.Errorf("opening --root: %w", err)
	}
	return &Server{
		opts: opts, log: log, metrics: newMetrics(registry), disk: d, users: users{opts.Users}, hostKey: hostKey,
		guard: newGuard(time.Now), turns: newTurns(atOnce),
		introductionTimeout: introductionTimeout, handshakeTimeout: handshakeTimeout, lastLogins: lastLogins,
		late: make(chan struct{}), uploads: defaultUploadBounds, drains: uploadDrains,
		introductions: &lobby{most: handshakesPerSession * opts.MaxConnections, each: math.MaxInt},
		lobby:         &lobby{most: handshakesPerSession * opts.MaxConnections, each: handshakesOfAddress},
		sessions:      newPlaces(opts.MaxConnections, max(1, opts.MaxConnections/2)),
	}, nil
}

func readHostKey(path string) (ssh.Signer, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the host key: %w", err)
	}
	key, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		return nil, fmt.Errorf("reading the host key %s: it must be an Ed25519, ECDSA or RSA key in PEM without a passphrase: %w", path, err)
	}
	switch kind := key.PublicKey().Type(); kind {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521:
		return key, nil
	case ssh.KeyAlgoRSA:
		signer, ok := key.(ssh.AlgorithmSigner)
		if !ok {
			return nil, fmt.Errorf("reading the host key %s: it can't sign with SHA-2", path)
		}
		return ssh.NewSignerWithAlgorithms(signer, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}) //nolint:wrapcheck // it can't fail
	default:
		return nil, fmt.Errorf("reading the host key %s: it must be an Ed25519, ECDSA or RSA key, not %s", path, kind)
	}
}

// Close closes the directory, after Serve.
func (s *Server) Close() { _ = s.disk.root.Close() }

// Serve accepts connections until ctx ends, and then ends them: those that are still there after the
// time to drain at once, but for those whose uploads go on. It closes the listener. It is called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s.measuring.Go(func() { s.disk.quota.measure(running) })
	var clients sync.WaitGroup
	for {
		c, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			break
		}
		if err != nil {
			s.log.Error(err, "A connection couldn't be accepted")
			select {
			case <-time.After(acceptAgain):
			case <-ctx.Done():
			}
			continue
		}
		clients.Go(func() { s.client(running, c) })
	}
	defer time.AfterFunc(s.lastLogins, s.lobby.close).Stop()
	gone := make(chan struct{})
	go func() {
		clients.Wait()
		close(gone)
	}()
	drained := time.NewTimer(s.opts.Drain)
	defer drained.Stop()
	select {
	case <-gone:
	case <-drained.C:
		close(s.late)
		over := time.NewTimer(time.Duration(s.drains-1) * s.opts.Drain)
		defer over.Stop()
		select {
		case <-gone:
		case <-over.C:
		}
	}
	end()
	<-gone
	s.measuring.Wait()
}

// client serves a connection to its end.
func (s *Server) client(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if c = s.introduce(c); c == nil {
		return
	}
	l := &login{Server: s, from: addressOf(c.RemoteAddr())}
	conn, channels, requests := l.handshake(ctx, c)
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if why, ok := s.sessions.take(l.from); !ok {
		s.metrics.refused(why)
		refuseSessions(channels, requests)
		return
	}
	defer s.sessions.leave(l.from)
	s.guard.loggedIn(l.from)
	s.metrics.logins.WithLabelValues(l.method).Inc()
	s.metrics.sessions.Inc()
	defer s.metrics.sessions.Dec()
	s.measuring.Go(func() { s.disk.quota.measure(ctx) })
	newSession(s, conn, l.method).run(channels, requests)
}

// handshake logs a client in; nil: it didn't.
func (l *login) handshake(ctx context.Context, c net.Conn) (*ssh.ServerConn, <-chan ssh.NewChannel, <-chan *ssh.Request) {
	recent, _ := l.guard.standing(l.from)
	g, why := l.lobby.admit(l.from, recent, func() { _ = c.Close() })
	if why != "" {
		l.metrics.refused(why)
	}
	conn, channels, requests := l.logIn(ctx, c)
	switch ended := l.lobby.leave(g); {
	case conn == nil && !ended:
		l.metrics.refused(refusedHandshake)
	case conn != nil && ended: // it made room for another one just then, and is counted as that
		_ = conn.Close()
		refuseSessions(channels, requests)
		return nil, nil, nil
	}
	return conn, channels, requests
}

// refuseSessions refuses whatever a client asks for. Whoever sends that ends once it is taken and the
// connection is closed.
func refuseSessions(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	go ssh.DiscardRequests(requests)
	go func() {
		for asked := range channels {
			_ = asked.Reject(ssh.ResourceShortage, "too many sessions")
		}
	}()
}

// logIn makes the handshake of SSH, within its time; nil: it failed.
func (l *login) logIn(ctx context.Context, c net.Conn) (*ssh.ServerConn, <-chan ssh.NewChannel, <-chan *ssh.Request) {
	ctx, cancel := context.WithTimeout(ctx, l.handshakeTimeout)
	defer cancel()
	l.ctx = ctx
	if err := c.SetDeadline(time.Now().Add(l.handshakeTimeout)); err != nil {
		return nil, nil, nil
	}
	conn, channels, requests, err := ssh.NewServerConn(c, l.config())
	if err != nil {
		return nil, nil, nil
	}
	// It fails where the connection has ended already, which makes the login no less one: its session ends
	// at once.
	_ = c.SetDeadline(time.Time{})
	return conn, channels, requests
}
