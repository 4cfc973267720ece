package service

import (
	"sync/atomic"
	"time"
)

// MomentStep is how exact a Moment is.
const MomentStep = 100 * time.Millisecond

// Moment is when something happened last. It is noted for each packet, by several
// processors, and written only when it is MomentStep old: each write would take the
// memory away from the others.
type Moment struct{ nanos atomic.Int64 }

// Note takes in that it happens now.
func (m *Moment) Note(now time.Time) {
	n := now.UnixNano()
	// The clock may have been set back.
	if since := time.Duration(n - m.nanos.Load()); since.Abs() >= MomentStep {
		m.nanos.Store(n)
	}
}

// Last may be up to MomentStep too early. Ever is false if it never happened.
func (m *Moment) Last() (at time.Time, ever bool) {
	n := m.nanos.Load()
	return time.Unix(0, n), n != 0
}
