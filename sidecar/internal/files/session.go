package files

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// mostChannels bounds the channels of a connection. Clients use one, and some a few.
const mostChannels = 2

// session is a connection of a user who has logged in.
type session struct {
	*Server

	conn    *ssh.ServerConn
	method  string
	handler *handler

	channels       atomic.Int32
	received, sent atomic.Int64
	idle           *time.Timer
	wasIdle        atomic.Bool
	// gone is closed once the connection has ended.
	gone chan struct{}
}

func newSession(s *Server, conn *ssh.ServerConn, method string) *session {
	made := &session{Server: s, conn: conn, method: method, gone: make(chan struct{})}
	made.handler = &handler{disk: s.disk, metrics: s.metrics, late: s.late, gone: made.gone, waits: made.waits}
	return made
}

// run serves the session until the connection ends.
func (s *session) run(channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	log := s.log.WithValues("user", s.conn.User(), "address", s.conn.RemoteAddr().String())
	log.Info("A user logged in", "method", s.method)
	s.idle = time.AfterFunc(s.opts.IdleTimeout, func() {
		s.wasIdle.Store(true)
		_ = s.conn.Close()
	})
	defer s.idle.Stop()
	var parts sync.WaitGroup
	parts.Go(func() { s.endLate(s.gone) })
	parts.Go(func() {
		for r := range requests {
			// Such as keepalive@openssh.com, to which any answer will do, and tcpip-forward.
			s.refuse(r)
		}
	})
	for c := range channels {
		s.channel(&parts, c)
	}
	close(s.gone)
	parts.Wait()
	log.Info("A user's session ended", "received", s.received.Load(), "sent", s.sent.Load(), "idle", s.wasIdle.Load())
}

// moved counts bytes of SFTP. Nothing else keeps a session from being idle.
func (s *session) moved(received, sent int) {
	s.received.Add(int64(received))
	s.sent.Add(int64(sent))
	s.metrics.bytes.WithLabelValues("received").Add(float64(received))
	s.metrics.bytes.WithLabelValues("sent").Add(float64(sent))
	if received+sent > 0 {
		s.idle.Reset(s.opts.IdleTimeout)
	}
}

// waits notes that the server has the client wait.
func (s *session) waits() { s.idle.Reset(s.opts.IdleTimeout) }

// channel opens a channel for SFTP, or refuses it.
func (s *session) channel(parts *sync.WaitGroup, asked ssh.NewChannel) {
	var reason ssh.RejectionReason
	switch {
	case asked.ChannelType() != "session":
		reason = ssh.Prohibited
	case s.channels.Load() >= mostChannels:
		reason = ssh.ResourceShortage
	default:
		c, requests, err := asked.Accept()
		if err != nil {
			return
		}
		s.channels.Add(1)
		parts.Go(func() {
			defer s.channels.Add(-1)
			s.subsystem(c, requests)
		})
		return
	}
	s.metrics.refused(refusedChannel)
	_ = asked.Reject(reason, "only SFTP is served")
}

// subsystem serves a channel once it asked for SFTP. All else that it asks for is refused.
func (s *session) subsystem(c ssh.Channel, requests <-chan *ssh.Request) {
	defer func() { _ = c.Close() }()
	var serving sync.WaitGroup
	begun := false
	for r := range requests {
		var name struct{ Name string }
		if begun || r.Type != "subsystem" || ssh.Unmarshal(r.Payload, &name) != nil || name.Name != "sftp" {
			s.refuse(r)
			continue
		}
		begun = true
		_ = r.Reply(true, nil)
		serving.Go(func() { s.sftp(c) })
	}
	// The connection, or the channel, is gone.
	_ = c.Close()
	serving.Wait()
}

func (s *session) sftp(c ssh.Channel) {
	steps := newLockstep(c, s.moved)
	defer func() { _ = steps.Close() }()
	// It ends with the client. Its error says no more than that.
	_ = sftp.NewRequestServer(steps, s.handler.handlers()).Serve()
	_, _ = c.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{}))
}

func (s *session) refuse(r *ssh.Request) {
	s.metrics.refused(refusedRequest)
	if r.WantReply {
		_ = r.Reply(false, nil)
	}
}
