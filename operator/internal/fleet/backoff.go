package fleet

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// provenAfter is how long a Server must have been Ready to count as good.
	provenAfter = 10 * time.Minute
	// firstDelay and maxDelay bound how long a replacement waits, and the next try
	// after a refusal. Each in a row doubles it.
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
)

// backoff keeps Servers that fail again and again from being replaced as fast as
// they fail, and what the API server refuses from being asked for all the time.
// It doesn't hold up a scale-up: only as many Servers wait as have failed.
type backoff struct {
	// streak counts rounds of failures in a row, last is when the last failure was,
	// and debt how many Servers failed in the last round, whose replacements wait
	// until notBefore.
	streak    int
	last      time.Time
	debt      int
	notBefore time.Time
	lives     map[types.UID]life

	// refusals counts refused tries in a row, the next being at refusedUntil, and
	// refusal is what the API server said.
	refusals     int
	refusedUntil time.Time
	refusal      string
}

// life is what is remembered of a Server.
type life struct {
	readySince time.Time
	// proven is whether it was Ready for provenAfter, and served whether anybody
	// played on it.
	proven, served bool
	// judged is whether it is known for a failure or for none.
	judged bool
}

// watch follows for how long a Server has been Ready.
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
	l.proven = l.proven || !l.readySince.IsZero() && until.Sub(l.readySince) >= provenAfter
	if !up && !l.proven {
		l.readySince = time.Time{}
	}
}

// judge says, once, that a Server has failed.
func (l *life) judge(s *server) bool {
	switch bad := s.unhealthy || s.shutdown; {
	case s.draining, s.deleting && !s.shutdown:
		l.judged = true // It goes for another reason.
		return false
	case !bad || l.judged:
		l.judged = bad
		return false
	}
	l.judged = true
	return !l.proven && (s.unhealthy || !l.served)
}

// learn takes in how the Servers have done.
//
// A Server has failed when it became Unhealthy, or its game asked for its end,
// before it was Ready for provenAfter; not if somebody played on a game that then
// ended, as one that plays a single match does. A replacement that was Ready for
// that long ends the streak.
func (b *backoff) learn(now time.Time, servers []server) {
	lives := make(map[types.UID]life, len(servers))
	failed := 0
	for i := range servers {
		s := &servers[i]
		l := b.lives[s.uid]
		l.watch(now, s)
		if l.proven && l.readySince.After(b.last) {
			b.streak = 0
		}
		if l.judge(s) {
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

// accepted takes in that it took one.
func (b *backoff) accepted() { b.refusals, b.refusedUntil, b.refusal = 0, time.Time{}, "" }

// forgive begins anew, for a template that may be mended.
func (b *backoff) forgive() { *b = backoff{lives: b.lives} }

// delay is how long to wait after that many in a row.
func delay(n int) time.Duration {
	if n > 16 {
		return maxDelay
	}
	return min(firstDelay<<(n-1), maxDelay)
}
