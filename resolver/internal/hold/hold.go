// Package hold owns the clients that wait for a sleeping service: one Queue for
// each ElasticService, with its bounds and timeouts, the calls that wake the
// service, and the dialing that finds out when a backend is up.
//
// A client's wait ends with an Outcome: a release to a backend, or a refusal. Whoever waits for
// it does so by the client's Ticket. What a client sent, and how it is relayed, belongs to the
// data plane, of which the queue knows nothing.
package hold

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// Times of a queue.
const (
	// wakePeriod is how far apart wake calls are while clients wait.
	wakePeriod = time.Second
	// retryPeriod is the period after an answer that lets no client in: the sleep could not be
	// cancelled any more, or the call failed.
	retryPeriod = 250 * time.Millisecond
	// wakeGap is how far apart calls are that are made for clients that came after the last
	// one.
	wakeGap = 50 * time.Millisecond
	// crowdedPeriod is how far apart calls are where clients wait for room.
	crowdedPeriod = 10 * time.Second
	// nothingTime is for how long the operator must have answered that there is nothing to wake
	// before clients are refused for it: a target that is being replaced, or an operator that
	// lags behind, costs nobody the connection. New clients are refused at once for
	// nothingMemory after the last such answer.
	nothingTime   = 3 * time.Second
	nothingMemory = time.Minute
	// nothingGap is how far apart such answers may be to count as uninterrupted.
	nothingGap = 3 * time.Second

	// dialPeriod is how often a backend that is not up is dialled.
	dialPeriod = 10 * time.Millisecond
	// quickPeriod is how often it is at first: a game that begins to listen keeps its first client waiting for half of
	// that. It is so for quickTime, while the dials of all services are few enough.
	quickPeriod = 3 * time.Millisecond
	quickTime   = time.Second
	// quickRate is how many dials a second may be so, of all services: with hundreds that wake together the dials
	// would cost more than they save.
	quickRate, quickBurst = 2000, 200
	// dialShort bounds most dials: within a cluster an answer takes a few milliseconds, and
	// waiting longer for a lost one would hide a backend that is up.
	dialShort = 50 * time.Millisecond
	// dialLong bounds every fifth dial, for pods that are far away.
	dialLong = 250 * time.Millisecond
	// dialWidth is how many addresses are dialled at once.
	dialWidth = 4

	// asideFor is how long an address is left alone after a failed dial, or after it refused a
	// datagram. It must not be shorter, see datagramPeriods.
	asideFor = 1050 * time.Millisecond
	// DialTimeout bounds a dial to a backend that is assumed to be up.
	DialTimeout = 250 * time.Millisecond
)

// datagramPeriods space the tries of a datagram that was refused. Linux sends a peer a burst of
// about six port-unreachable messages, then one a second. Tried more often, a datagram that met
// no bound port would seem to be delivered.
var datagramPeriods = []time.Duration{
	20 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond,
	160 * time.Millisecond, 320 * time.Millisecond, 1050 * time.Millisecond,
}

// NewQuickDials bounds the dials that many queues make more often than others.
func NewQuickDials() *rate.Limiter { return rate.NewLimiter(quickRate, quickBurst) }

// Errors of Hold.
var (
	// ErrFull means that as many clients wait as may.
	ErrFull = errors.New("the queue is full")
	// ErrGone means that the service or port is not served any more.
	ErrGone = errors.New("the service is gone")
)

// Release is a backend for a client that waited.
type Release struct {
	// Address is the backend's address.
	Address netip.AddrPort
	// Conn is a connection to the backend that is already made; may be nil.
	Conn *conn.Stream
	// Unproven reports whether it is unknown whether the backend accepts datagrams. The client
	// is the only one that tries it, and must end that with Queue.Answered, Queue.Untried or
	// Queue.Avoid.
	Unproven bool
	// Slot is the client's place on the backend, which it leaves when it goes to another or
	// ends; nil where backends are not chosen by their load.
	Slot *Slot
	// backend is the backend's state; nil where clients were released to several at once.
	backend *backend
}

// Reached notes that the client has connected to the backend.
func (g Release) Reached(now time.Time) {
	if g.backend != nil {
		g.backend.reached.Store(now.UnixNano())
	}
}

// Outcome is what ended a client's wait.
type Outcome struct {
	// Release is the backend that the client is to try, where it isn't refused.
	Release Release
	// Refused is why the client is refused; empty: it is released.
	Refused proto.Reason
}

// Datagrams is a client of a UDP port, which has no goroutine that could wait. Its methods are
// called without locks held and must not block, except for Try. Each wait ends in exactly one
// call of Ended, unless the client leaves first.
type Datagrams interface {
	// Ended is called with what ended the wait.
	Ended(Outcome)
	// Try sends the client's first datagram and waits a short time for a refusal. One of those
	// that wait is asked to, so that it is known whether a backend is up.
	Try(ctx context.Context, backend netip.AddrPort) Tried
}

// Tried is what came of a datagram.
type Tried int

const (
	// Taken means that nothing refused the datagram.
	Taken Tried = iota
	// NotBound means that the backend's port is not bound yet; the datagram is to
	// be sent again.
	NotBound
	// Failed means that the datagram could not be sent.
	Failed
	// Spent means that the client has left, because it had nothing that could be sent. It
	// implies nothing about the backend.
	Spent
)

// Waker makes a wake call.
type Waker interface {
	Wake(ctx context.Context, namespace, service string, count int) wake.Result
}

// DialFunc connects to a backend.
type DialFunc func(ctx context.Context, address netip.AddrPort, timeout time.Duration) (*conn.Stream, error)
