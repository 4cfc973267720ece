package udp

import (
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
)

// handoverLag is how much earlier than the route nodes may learn that new clients go past the
// resolver: the endpoints are written before the status.
const handoverLag = 5 * time.Second

// handover is since when a service's new clients go past the resolver.
type handover struct{ since atomic.Int64 }

// follow takes in whether they do.
func (h *handover) follow(direct bool) {
	if !direct {
		h.since.Store(0)
	} else {
		h.since.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// before reports whether the handover came before the client was last heard.
func (h *handover) before(heard time.Time) bool {
	since := h.since.Load()
	return since != 0 && heard.UnixNano() > since-int64(handoverLag)
}

// noteCutShort counts a session whose client fell silent in the middle of the game: its backend
// went on sending for some time, and the client played after the handover. Its node may then
// have sent it past the resolver. A client that quits silently looks the same, so only many of
// them mean something. The session is locked.
func (s *session) noteCutShort() {
	if s.cutShort || s.query || s.state.Load() != sessionLive {
		return
	}
	client, _ := s.clientAt.Last()
	server, ever := s.serverAt.Last()
	// Five seconds of the usual two minutes: a game that is told of the end stops sending
	// sooner.
	late := s.idle()/24 + service.LastSeenStep
	if ever && server.Sub(client) >= late && s.port.udp.handover.before(client) {
		s.cutShort = true
		s.port.Counts.SessionCutShort()
	}
}
