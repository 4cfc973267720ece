package fleet

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// stableAfter is how long a Server must have been Ready to count as good.
	stableAfter = 10 * time.Minute
	// matchTime is how long a Server must have been Ready for its game's own end not to count as a
	// failure, though nobody was seen to play.
	matchTime = time.Minute
	// firstDelay and maxDelay bound how long a replacement waits, and the next try after a
	// refusal. Each in a row doubles the delay.
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
)

// backoff keeps Servers that fail again and again from being replaced as fast as they fail, and
// keeps refused calls from being repeated all the time. It doesn't delay a scale-up: only as
// many Servers wait as have failed.
type backoff struct {
	// streak counts rounds of failures in a row, and last is when the last failure was. Debt is
	// how many Servers failed in the last round; their replacements wait until notBefore.
	streak    int
	last      time.Time
	debt      int
	notBefore time.Time
	lives     map[types.UID]life

	// refusals counts refused tries in a row. The next try is at refusedUntil, and refusal is
	// the API server's message.
	refusals     int
	refusedUntil time.Time
	refusal      string
}

// life is the memory of a Server.
type life struct {
	readySince time.Time
	// stable is set once it was Ready for stableAfter, and served once somebody played on it, or
	// it was Ready for a match's time.
	stable, served bool
	// failureCounted is set once it is decided whether it has failed.
	failureCounted bool
}

// watch notes for how long a Server has been Ready.
func (l *life) watch(now time.Time, s *server) {
	l.served = l.served || s.allocated || s.players > 0
	up := s.ready || s.up()
	if s.ready || up && l.readySince.IsZero() {
		l.readySince = s.changed
	}
	until := now
	if !up {
		until = s.changed
	}
	l.served = l.served || !l.readySince.IsZero() && until.Sub(l.readySince) >= matchTime
	l.stable = l.stable || !l.readySince.IsZero() && until.Sub(l.readySince) >= stableAfter
	if !up && !l.stable {
		l.readySince = time.Time{}
	}
}

// failedNow reports whether a Server has failed, once for each.
func (l *life) failedNow(s *server) bool {
	switch bad := s.unhealthy || s.shutdown; {
	case s.draining, s.deleting && !s.shutdown:
		l.failureCounted = true // it goes for another reason
		return false
	case !bad || l.failureCounted:
		l.failureCounted = bad
		return false
	}
	l.failureCounted = true
	return !l.stable && (s.unhealthy || !l.served)
}

// learn takes in how the Servers have fared.
//
// A Server has failed when it became Unhealthy, or its game asked for its end,
// before it was Ready for stableAfter; not if somebody played on a game that then
// ended, as one that plays a single match does. A replacement that was Ready for
// that long ends the streak.
func (b *backoff) learn(now time.Time, servers []server) {
	lives := make(map[types.UID]life, len(servers))
	failed := 0
	for i := range servers {
		s := &servers[i]
		l := b.lives[s.uid]
		l.watch(now, s)
		if l.stable && l.readySince.After(b.last) {
			b.streak = 0
		}
		if l.failedNow(s) {
			failed++
		}
		lives[s.uid] = l
	}
	b.lives = lives
	if !now.Before(b.notBefore) {
		b.debt = 0
	}
	if failed == 0 {
		return
	}
	if !now.Before(b.notBefore) {
		b.streak++
		b.notBefore = now.Add(delay(b.streak))
	}
	b.last = now
	b.debt += failed
}

// refused takes in that the API server refuses Servers.
func (b *backoff) refused(now time.Time, words string) {
	b.refusals++
	b.refusedUntil, b.refusal = now.Add(delay(b.refusals)), words
}

// forgive resets everything, for a template that may be fixed.
func (b *backoff) forgive() { *b = backoff{lives: b.lives} }

// delay is how long to wait after n in a row.
func delay(n int) time.Duration {
	if n > 16 {
		return maxDelay
	}
	return min(firstDelay<<(n-1), maxDelay)
}
