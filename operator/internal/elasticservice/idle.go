package elasticservice

import (
	"fmt"
	"time"

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
		return verdict{reason: fmt.Sprintf("%d clients pass through the resolvers and %d wait.", in.sessions, in.queued), again: 5 * time.Second}
	case in.hasTriggers && in.triggers.Err != nil:
		return verdict{reason: fmt.Sprintf("A trigger can't be read: %v.", in.triggers.Err)}
	case in.hasTriggers && in.triggers.BelowSince.IsZero():
		return verdict{reason: "A trigger is at or above its threshold."}
	case in.hasPlayers && in.players.busy != "":
		return verdict{reason: fmt.Sprintf("Somebody plays on Server %s.", in.players.busy)}
	}
	since := latest(in.awakeSince, in.lastActive)
	if in.hasPlayers {
		since = latest(since, in.players.idleSince)
	}
	if in.hasTriggers {
		since = latest(since, in.triggers.BelowSince)
	}
	left := since.Add(in.sleepAfter).Sub(now)
	// Reports that keep it awake are looked for again, so that it is known when
	// they don't any more.
	if reports := in.players.reports; in.hasPlayers && (left <= 0 || !reports.asked.IsZero() && !reports.quiet()) {
		if v := decideByReports(now, reports); v != nil {
			return *v
		}
	}
	if left > 0 {
		return verdict{reason: fmt.Sprintf("It has been idle for less than %s.", in.sleepAfter), again: left}
	}
	return verdict{sleep: true, reason: fmt.Sprintf("It has been idle for %s.", in.sleepAfter)}
}

// decideByReports says why the Servers' reports keep a service awake; nil when
// they don't.
func decideByReports(now time.Time, p playerReports) *verdict {
	var reason string
	switch {
	case p.asked.IsZero() || now.Sub(p.asked) > reportsFor:
		return &verdict{reason: "The Servers' reports are looked for.", askPlayers: true, again: reportsFor}
	case p.quiet():
		return nil
	case p.err != nil:
		reason = fmt.Sprintf("Who plays is not known: %v.", p.err)
	case p.busy != "":
		reason = fmt.Sprintf("Somebody plays on Server %s.", p.busy)
	case len(p.silent) > 0:
		reason = fmt.Sprintf("Who plays is not known: %s said nothing lately.", some(p.silent))
	default:
		reason = fmt.Sprintf("A game was just started on %s.", some(p.young))
	}
	return &verdict{reason: reason, again: 5 * time.Second}
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
