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
}

// verdict is what decide says.
type verdict struct {
	sleep bool
	// reason is a sentence.
	reason string
	// again is after how long it may be different without a change that a watch
	// or the trigger poller would tell; 0 for not before.
	again time.Duration
}

// decide says whether an awake service may sleep. Everything must speak for it;
// whatever is unknown keeps the service awake.
func decide(now time.Time, in idleness) verdict {
	switch {
	case in.sleepAfter == 0:
		return verdict{reason: "sleepAfter is 0s, so it never sleeps by itself."}
	case in.handoff == v1alpha1.HandoffDirect && !in.hasTriggers:
		return verdict{reason: "Nothing tells whether it is idle."}
	case in.clientsErr != nil:
		return verdict{reason: fmt.Sprintf("The resolvers' clients are not known: %v.", in.clientsErr), again: 5 * time.Second}
	case in.sessions > 0 || in.queued > 0:
		return verdict{reason: fmt.Sprintf("%d clients pass through the resolvers and %d wait.", in.sessions, in.queued), again: 5 * time.Second}
	case in.hasTriggers && in.triggers.Err != nil:
		return verdict{reason: fmt.Sprintf("A trigger can't be read: %v.", in.triggers.Err)}
	case in.hasTriggers && in.triggers.BelowSince.IsZero():
		return verdict{reason: "A trigger is at or above its threshold."}
	}
	since := latest(in.awakeSince, in.lastActive)
	if in.hasTriggers {
		since = latest(since, in.triggers.BelowSince)
	}
	if left := since.Add(in.sleepAfter).Sub(now); left > 0 {
		return verdict{reason: fmt.Sprintf("It has been idle for less than %s.", in.sleepAfter), again: left}
	}
	return verdict{sleep: true, reason: fmt.Sprintf("It has been idle for %s.", in.sleepAfter)}
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
