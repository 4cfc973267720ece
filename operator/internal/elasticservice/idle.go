package elasticservice

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// idleness is what tells whether an awake service is idle.
type idleness struct {
	sleepAfter time.Duration // 0 is never
	handoff    v1alpha1.Handoff
	// awakeSince is when the service became awake; zero when that is settled.
	awakeSince time.Time
	// clientsErr says why the resolvers' clients are not known; nil when they are.
	clientsErr error
	sessions   int32
	queued     int32
	// lastActive is when a resolver last had a client.
	lastActive time.Time
	// watched is since when the resolvers have watched, where they see all clients.
	watched time.Time
	// idleSince is since when the service has been idle by its status; zero when that
	// doesn't say.
	idleSince time.Time
	// hasTriggers says that the spec has any.
	hasTriggers bool
	triggers    trigger.Reading
	// hasPlayers says that players keep the service awake.
	hasPlayers bool
	players    observedPlayers
}

// verdict is what decide says.
type verdict struct {
	sleep bool
	// reason is a sentence.
	reason string
	// used says that somebody uses the service, or that nobody can tell; else idleSince is
	// since when nobody has. Neither is set where it isn't known yet.
	used      bool
	idleSince time.Time
	// again is after how long it may be different without a change that a watch
	// or the trigger poller would tell; 0 for not before.
	again time.Duration
	// askPlayers says that it depends on the Servers' reports alone, and that what
	// is known of those is too old.
	askPlayers bool
}

// reportsFor is for how long the Servers' reports serve, once they were looked for.
const reportsFor = 3 * time.Second

// decide says whether an awake service may sleep. Everything must speak for it;
// whatever is unknown keeps the service awake.
func decide(now time.Time, in idleness) verdict {
	switch {
	case in.sleepAfter == 0:
		return verdict{reason: "sleepAfter is 0s, so it never sleeps by itself."}
	case in.handoff == v1alpha1.HandoffDirect && !in.hasTriggers && !in.hasPlayers:
		return verdict{reason: "Nothing tells whether it is idle."}
	case in.clientsErr != nil:
		return verdict{reason: fmt.Sprintf("The resolvers' clients are not known: %v.", in.clientsErr), again: 5 * time.Second}
	case in.sessions > 0 || in.queued > 0:
		return verdict{reason: fmt.Sprintf("Clients are there: %d pass through the resolvers, and %d wait.", in.sessions, in.queued), again: 5 * time.Second, used: true}
	case in.hasTriggers && in.triggers.Err != nil:
		return verdict{reason: fmt.Sprintf("A trigger can't be read: %v.", in.triggers.Err), used: true}
	case in.hasTriggers && in.triggers.BelowSince.IsZero():
		return verdict{reason: "A trigger is at or above its threshold.", used: !in.triggers.At.IsZero()}
	case in.hasPlayers && in.players.busy != "":
		return verdict{reason: fmt.Sprintf("Somebody plays on Server %s.", in.players.busy), used: true}
	}
	since, left := in.left(now)
	// Reports that keep it awake are looked for again, so that it is known when
	// they don't any more.
	if reports := in.players.reports; in.hasPlayers && (left <= 0 || !reports.asked.IsZero() && !reports.quiet()) {
		if v := decideByReports(now, reports); v != nil {
			return *v
		}
	}
	if left > 0 {
		return verdict{reason: fmt.Sprintf("It has been idle for less than %s.", in.sleepAfter), again: left, idleSince: since}
	}
	return verdict{sleep: true, reason: fmt.Sprintf("It has been idle for %s.", in.sleepAfter), idleSince: since}
}

// watchTime is how long a process that has just started watches at least before it goes
// by what the status says of the time before. Idleness that lasts no longer isn't kept.
const watchTime = 5 * time.Minute

// left is since when the service has been idle, and how much is left of sleepAfter.
func (in *idleness) left(now time.Time) (since time.Time, left time.Duration) {
	used := latest(in.awakeSince, in.lastActive)
	seen := latest(used, in.watched)
	if in.hasPlayers {
		seen = latest(seen, in.players.idleSince)
	}
	if in.hasTriggers {
		seen = latest(seen, in.triggers.BelowSince)
	}
	if in.idleSince.Sub(seen) > time.Minute {
		seen = in.idleSince // another process knew better: this one hasn't seen it used
	}
	if in.idleSince.IsZero() || in.sleepAfter <= watchTime || in.idleSince.After(seen) || used.After(in.idleSince) {
		return seen, seen.Add(in.sleepAfter).Sub(now)
	}
	// Nobody is known to have used it since: another process watched before this one.
	return in.idleSince, latest(in.idleSince.Add(in.sleepAfter), seen.Add(watchTime)).Sub(now)
}

// keptIdle is since when a service has been idle as its status keeps it, which is written
// twice an idle time at most; nil: nothing is kept.
func keptIdle(now time.Time, es *v1alpha1.ElasticService, v verdict, phase v1alpha1.Phase) *metav1.Time {
	kept := es.Status.IdleSince
	switch {
	case v.used || phase != v1alpha1.PhaseAwake && phase != v1alpha1.PhaseFallingAsleep || sleepAfter(es) <= watchTime:
		return nil
	case v.idleSince.IsZero():
		return kept // it isn't known
	case kept != nil && !v.idleSince.After(kept.Time):
		return kept
	}
	if since := wholeMinute(v.idleSince); !now.Before(since) {
		return &metav1.Time{Time: since}
	}
	return nil
}

// untilKept is how long it takes until there is something to keep; 0: there is no need to
// look.
func untilKept(now time.Time, es *v1alpha1.ElasticService, v verdict) time.Duration {
	if v.idleSince.IsZero() || sleepAfter(es) <= watchTime {
		return 0
	}
	return max(0, wholeMinute(v.idleSince).Sub(now))
}

// wholeMinute rounds up, so that idleness is never told to be longer than it is.
func wholeMinute(t time.Time) time.Time { return t.Truncate(time.Minute).Add(time.Minute) }

// decideByReports says why the Servers' reports keep a service awake; nil when
// they don't.
func decideByReports(now time.Time, p playerReports) *verdict {
	var reason string
	used := false
	switch {
	case p.asked.IsZero() || now.Sub(p.asked) > reportsFor:
		return &verdict{reason: "The Servers' reports are looked for.", askPlayers: true, again: reportsFor}
	case p.quiet():
		return nil
	case p.err != nil:
		reason = fmt.Sprintf("Who plays is not known: %v.", p.err)
	case p.busy != "":
		reason, used = fmt.Sprintf("Somebody plays on Server %s.", p.busy), true
	case len(p.silent) > 0:
		reason, used = fmt.Sprintf("Who plays is not known: %s said nothing lately.", some(p.silent)), true
	default:
		reason = fmt.Sprintf("A game was just started on %s.", some(p.young))
	}
	return &verdict{reason: reason, again: 5 * time.Second, used: used}
}

func latest(times ...time.Time) time.Time {
	var l time.Time
	for _, t := range times {
		if t.After(l) {
			l = t
		}
	}
	return l
}
