package service

import (
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/internal/informerapi"
)

// Activity is who a service carries.
type Activity struct {
	// Relayed counts clients with a backend. Open counts, of those and of those that are on
	// their way to one, the TCP connections.
	Relayed, Open atomic.Int32
	// heard is when a client was last heard of.
	heard Moment
}

// Touch takes in that a client was heard of.
func (a *Activity) Touch(now time.Time) { a.heard.Note(now) }

// Carried tells the operator whom the service carries; ever reports whether there ever was
// a client that counts.
func (s *Service) Carried(now time.Time) (out informerapi.Sessions, ever bool) {
	a := &s.Active
	out = informerapi.Sessions{
		UID:      string(s.Route().UID),
		Sessions: a.Relayed.Load(),
		Queued:   int32(s.Queue.Len()), //nolint:gosec // bounded by the API
	}
	if a.Open.Load() > 0 || out.Queued > 0 {
		out.LastActive = now
		return out, true
	}
	out.LastActive, ever = a.heard.Last()
	if !ever {
		out.LastActive = time.Time{}
	}
	return out, ever || out.Sessions > 0
}
