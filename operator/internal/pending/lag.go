package pending

import "time"

// MaxLag is how long a cache may lag behind a write.
const MaxLag = 5 * time.Second

// Lag follows a cache that shows what a wake made for a later version of an object, but not yet
// that version.
type Lag struct {
	since time.Time
}

// Lasts takes in whether the cache lags now, and reports whether to wait for it, for MaxLag at most.
func (l *Lag) Lasts(now time.Time, lags bool) bool {
	switch {
	case !lags:
		l.since = time.Time{}
	case l.since.IsZero():
		l.since = now
	}
	return lags && now.Sub(l.since) < MaxLag
}
