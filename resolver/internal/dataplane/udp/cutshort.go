package udp

import (
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"

	"sync/atomic"
	"time"
)

// handoverLag is how much sooner than the route nodes may know that new clients go
// straight to the servers: the endpoints are written before the status.
const handoverLag = 5 * time.Second

// handover is since when a service's new clients go straight to its servers.
type handover struct{ since atomic.Int64 }

// follow takes in whether they do.
func (h *handover) follow(direct bool) {
	if !direct {
		h.since.Store(0)
	} else {
		h.since.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// before reports whether the handover was before a client was last heard.
func (h *handover) before(heard time.Time) bool {
	since := h.since.Load()
	return since != 0 && heard.UnixNano() > since-int64(handoverLag)
}

// noteCutShort counts a session whose client fell silent in the middle of the game: its
// server went on sending for some time, and the client played after the handover. Then
// its node may have sent it to a server, past the resolver. A client that quits without
// a word looks the same, so only many of them mean something. The session is locked.
func (s *session) noteCutShort() {
	if s.cutShort || s.query || s.state.Load() != sessionLive {
		return
	}
	client, _ := s.clientAt.Last()
	server, ever := s.serverAt.Last()
	// Five seconds of the usual two minutes: a server that is told of the end stops
	// sooner.
	late := s.idle()/24 + service.MomentStep
	if ever && server.Sub(client) >= late && s.port.udp.handover.before(client) {
		s.cutShort = true
		s.port.Counts.SessionCutShort()
	}
}
