package pending

import "time"

// MaxLag is how long a cache may lag behind a write.
const MaxLag = 5 * time.Second

// Lag follows a cache that shows what a wake made for a later version of an object, but not yet
// that version.
type Lag struct {
	since time.Time
}

// See takes in whether the cache lags now.
func (l *Lag) See(now time.Time, lags bool) {
	switch {
	case !lags:
		l.since = time.Time{}
	case l.since.IsZero():
		l.since = now
	}
}

// Lasts reports whether to wait for the cache, for MaxLag at most.
func (l *Lag) Lasts(now time.Time) bool { return !l.since.IsZero() && now.Sub(l.since) < MaxLag }
