package service

import (
	"sync/atomic"
	"time"
)

// LastSeenStep is how exact a LastSeen is.
const LastSeenStep = 100 * time.Millisecond

// LastSeen is when something happened last. It is noted for each packet, by several processors,
// and written only when it is LastSeenStep old: each write takes the cache line away from the
// other processors.
type LastSeen struct{ nanos atomic.Int64 }

// Note notes that it happens now.
func (m *LastSeen) Note(now time.Time) {
	n := now.UnixNano()
	// The clock may have been set back.
	if since := time.Duration(n - m.nanos.Load()); since.Abs() >= LastSeenStep {
		m.nanos.Store(n)
	}
}

// Last is when it happened last, or up to LastSeenStep earlier; ever is false if it never
// happened.
func (m *LastSeen) Last() (at time.Time, ever bool) {
	n := m.nanos.Load()
	return time.Unix(0, n), n != 0
}
