package kindwatch

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// grace is how long a kind is watched that nobody names any more.
	grace = 2 * time.Minute
	// firstRetry is when a kind that can't be watched is tried again; the pause doubles up to
	// lastRetry.
	firstRetry = 5 * time.Second
	lastRetry  = 30 * time.Second
	// maxBegun bounds how many watches begin at once, and burstPause is until the next may.
	// Anybody may name kinds that nobody has, and each costs a request.
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
}

// decide decides which watches begin and end. Those of usual kinds don't count towards most.
func decide(now time.Time, kinds map[schema.GroupVersionKind]observed, usual []schema.GroupVersionKind, most int) decision {
	var d decision
	again := func(at time.Time) {
		if d.next.IsZero() || at.Before(d.next) {
			d.next = at
		}
	}
	room := most
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
		return cmp.Or(kinds[a].tried.Compare(kinds[b].tried), cmp.Compare(a.String(), b.String()))
	})
	for _, kind := range due {
		counts := !slices.Contains(usual, kind)
		switch {
		case counts && room <= 0:
			d.excess = append(d.excess, kind)
			continue
		case counts && len(d.begin) >= maxBegun:
			again(now.Add(burstPause))
			continue
		case counts:
			room--
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
