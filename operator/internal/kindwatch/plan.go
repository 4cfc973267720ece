package kindwatch

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// grace is how long a kind is watched that nobody names any more.
	grace = 30 * time.Second
	// firstRetry is when a kind that can't be watched is tried again; the pause doubles up to
	// lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = 30 * time.Second
	// maxBegun bounds how many watches begin within burstPause. Anybody may name kinds that nobody
	// has, and each costs requests.
	maxBegun   = 8
	burstPause = time.Second
)

// observed is what is known of a kind.
type observed struct {
	// named is how many name it, and unnamedSince since when nobody does.
	named        int
	unnamedSince time.Time
	// open is set while there is a watch, or one begins.
	open bool
	// synced is set while the watch has all objects.
	synced bool
	// tries is how often it could not be watched, and tried when that was last.
	tries int
	tried time.Time
}

// decision is what is to be done about kinds.
type decision struct {
	// begin and end are the kinds whose watch begins or ends, and forget those of which nothing
	// needs to be known any more.
	begin, end, forget []schema.GroupVersionKind
	// excess are the kinds for which there is no room.
	excess []schema.GroupVersionKind
	// next is when to decide again at the latest; zero: once something changes.
	next time.Time
	// burst is what has begun lately, those of this decision among it.
	burst burst
}

// burst counts the watches that have begun within burstPause after a time.
type burst struct {
	since time.Time
	begun int
}

// decide decides which watches begin and end. Those of usual kinds don't count towards most, nor
// towards the burst.
func decide(now time.Time, kinds map[schema.GroupVersionKind]observed, usual []schema.GroupVersionKind, most int, lately burst) decision {
	d := decision{burst: lately}
	if !now.Before(lately.since.Add(burstPause)) {
		d.burst = burst{since: now}
	}
	again := func(at time.Time) {
		if d.next.IsZero() || at.Before(d.next) {
			d.next = at
		}
	}
	room, full := most, most
	var due []schema.GroupVersionKind
	for kind, k := range kinds {
		counts := !slices.Contains(usual, kind)
		switch until := k.unnamedSince.Add(grace); {
		case k.named == 0 && k.open && now.Before(until):
			again(until)
		case k.named == 0 && k.open:
			d.end = append(d.end, kind)
			continue
		case k.named == 0:
			d.forget = append(d.forget, kind)
			continue
		}
		if k.open {
			if counts {
				room--
			}
			if counts && k.synced {
				full--
			}
			continue
		}
		if at := k.tried.Add(retryAfter(k.tries)); now.Before(at) {
			again(at)
			continue
		}
		due = append(due, kind)
	}
	// Those that weren't tried for the longest come first.
	slices.SortFunc(due, func(a, b schema.GroupVersionKind) int {
		if c := kinds[a].tried.Compare(kinds[b].tried); c != 0 {
			return c
		}
		return cmp.Compare(a.String(), b.String())
	})
	for _, kind := range due {
		counts := !slices.Contains(usual, kind)
		switch {
		case counts && full <= 0:
			d.excess = append(d.excess, kind)
			continue
		case counts && (room <= 0 || d.burst.begun >= maxBegun):
			// Most of those that are tried now may come to nothing.
			again(d.burst.since.Add(burstPause))
			continue
		case counts:
			room--
			d.burst.begun++
		}
		d.begin = append(d.begin, kind)
	}
	return d
}

// retryAfter is how long a kind rests that could not be watched so many times.
func retryAfter(tries int) time.Duration {
	if tries == 0 {
		return 0
	}
	return min(firstRetry<<min(tries-1, 10), lastRetry)
}
