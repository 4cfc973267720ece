package dataplane

import (
	"sync/atomic"
	"time"
)

// momentStep is how exact a moment is.
const momentStep = 100 * time.Millisecond

// moment is when something happened last. It is noted for each packet, by several
// processors, and written only when it is momentStep old: each write would take the
// memory away from the others.
type moment struct{ nanos atomic.Int64 }

func (m *moment) note(now time.Time) {
	n := now.UnixNano()
	// The clock may have been set back.
	if since := time.Duration(n - m.nanos.Load()); since.Abs() >= momentStep {
		m.nanos.Store(n)
	}
}

// last may be up to momentStep too early. Ever is false if it never happened.
func (m *moment) last() (at time.Time, ever bool) {
	n := m.nanos.Load()
	return time.Unix(0, n), n != 0
}
