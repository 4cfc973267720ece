package dataplane

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

// Held datagrams of many sessions, delivered all at once, would overflow the
// receive buffer of a server that has just begun to read: Linux gives a socket
// room for some 270 small datagrams. So a port delivers them one session after
// the other, and no faster than a busy server reads.
const (
	// deliverBurst goes out at once: few held datagrams wait for nothing.
	deliverBurst = 64
	// deliverRate is in datagrams a second. It is low enough for a server that
	// is busy with something else for some 30 ms, and well above what the sessions
	// that still wait receive meanwhile, or they would never be done.
	deliverRate = 8000
)

// pace bounds how fast one port's held datagrams are delivered.
type pace struct {
	// turn is held by the session that delivers.
	turn    sync.Mutex
	limiter *rate.Limiter
}

func newPace() *pace { return &pace{limiter: rate.NewLimiter(deliverRate, deliverBurst)} }

// wait returns when the next datagram may go, or the context ends.
func (p *pace) wait(ctx context.Context) {
	if !p.limiter.Allow() {
		_ = p.limiter.Wait(ctx)
	}
}
