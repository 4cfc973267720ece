package service

import (
	"sync/atomic"
	"time"

	"dormouse.dev/dormouse/internal/informerapi"
)

// Activity counts a service's clients. Those who are relayed outlast their route.
type Activity struct {
	// Relayed counts clients with a backend, but for those that Unvalidated counts: UDP sessions
	// whose clients' addresses aren't validated. One that is no longer is counted by both for a
	// moment, and never by none.
	Relayed, Unvalidated atomic.Int32
	// Open counts the TCP connections among those and among the clients that are connecting to a
	// backend.
	Open atomic.Int32
	// Heard is when a client was last heard of.
	Heard LastSeen
}

// Clients counts the clients that have a backend or are connecting to one. A TCP client with a
// backend counts twice.
func (a *Activity) Clients() int32 {
	return a.Unvalidated.Load() + a.Relayed.Load() + a.Open.Load() // in that order: see Relayed
}

// Summary describes the service's clients for the operator. Ever reports whether there ever was
// a client that counts.
func (s *Service) Summary(now time.Time) (out informerapi.Sessions, ever bool) {
	a := s.Active
	unvalidated := a.Unvalidated.Load() // first: see Activity
	out = informerapi.Sessions{
		UID:         string(s.Route().UID),
		Sessions:    a.Relayed.Load() + unvalidated,
		Unvalidated: unvalidated,
		Queued:      int32(s.Queue.Len()), //nolint:gosec // bounded by the API
	}
	if a.Open.Load() > 0 || out.Queued > 0 {
		out.LastActive = now
		return out, true
	}
	out.LastActive, ever = a.Heard.Last()
	if !ever {
		out.LastActive = time.Time{}
	}
	return out, ever || out.Sessions > 0
}
