// Package idleness decides whether a service that is awake may sleep, by what resolvers,
// triggers and Servers report about its clients. All of them must agree, and what isn't known
// keeps the service awake. It is a function of those signals and of the time.
package idleness

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/text"
	"dormouse.dev/dormouse/operator/internal/times"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// Signals are the signals of whether an awake service is idle.
type Signals struct {
	SleepAfter time.Duration // 0 is never
	Handoff    v1alpha1.Handoff
	// AwakeSince is when the service became awake; zero when that is settled. LastWake is when it
	// was woken last; zero when it never was.
	AwakeSince, LastWake time.Time
	// ClientsErr is why the resolvers' clients are not known; nil when they are.
	ClientsErr error
	// Sessions are those of clients that are known to exist.
	Sessions int32
	Queued   int32
	// LastActive is when a resolver last had a client.
	LastActive time.Time
	// Watched is since when the resolvers have watched, where they see all clients; else zero.
	Watched time.Time
	// UnblockedAt is when all clients began to be seen, after some were not; zero where they always
	// were.
	UnblockedAt time.Time
	// IdleSince is since when the service has been idle by its status; zero when the status
	// doesn't have it.
	IdleSince time.Time
	// HasTriggers reports whether the spec has idle triggers.
	HasTriggers bool
	Triggers    trigger.Reading
	// HasPlayers reports whether players keep the service awake.
	HasPlayers bool
	Players    Players
	// Allocated is how Allocations use the target's Servers.
	Allocated book.Use
	// KeptAwake is by whom and until when it is kept awake whether it is idle or not.
	KeptAwake KeptAwake
}

// KeptAwake is what keeps a service awake, and until when; the zero value: nothing does.
type KeptAwake struct {
	// Until is until when it does; zero with Open.
	Until time.Time
	By    string
	// Open is set where it does so until it is asleep itself: that it is will be seen.
	Open bool
}

// Verdict is Decide's result.
type Verdict struct {
	Sleep bool
	// Reason explains the verdict in a sentence.
	Reason string
	// Used reports whether somebody uses the service, or that isn't known for lack of a signal.
	// Otherwise idleSince is since when nobody has used it. Neither is set where it isn't known
	// yet.
	Used      bool
	idleSince time.Time
	// RequeueAfter is after how long the verdict may change without a change that is watched or
	// that the trigger poller reports; 0: it doesn't.
	RequeueAfter time.Duration
	// AskPlayers reports whether the verdict depends on the Servers' reports alone and the
	// reports at hand are too old.
	AskPlayers bool
}

// reportsFor is how long the Servers' reports are used after they were asked for.
const reportsFor = 3 * time.Second

// Decide decides whether an awake service may sleep. All signals must agree; whatever is
// unknown keeps the service awake.
func Decide(now time.Time, in Signals) Verdict {
	switch {
	case in.SleepAfter == 0:
		return Verdict{Reason: "sleepAfter is 0s, so it never sleeps by itself."}
	case in.Handoff == v1alpha1.HandoffDirect && !in.HasTriggers && !in.HasPlayers:
		return Verdict{Reason: "Nothing tells whether it is idle."}
	case in.ClientsErr != nil:
		return Verdict{Reason: fmt.Sprintf("The resolvers' clients are not known: %v.", in.ClientsErr), RequeueAfter: 5 * time.Second}
	case in.Sessions > 0 || in.Queued > 0:
		return Verdict{Reason: fmt.Sprintf("Clients are there: %d pass through the resolvers, and %d wait.", in.Sessions, in.Queued), RequeueAfter: 5 * time.Second, Used: true}
	case in.HasTriggers && in.Triggers.Err != nil:
		return Verdict{Reason: fmt.Sprintf("A trigger can't be read: %v.", in.Triggers.Err), Used: true}
	case in.HasTriggers && in.Triggers.BelowSince.IsZero():
		return Verdict{Reason: "A trigger is at or above its threshold.", Used: !in.Triggers.At.IsZero()}
	case in.HasPlayers && in.Players.Busy != "":
		return Verdict{Reason: fmt.Sprintf("Somebody plays on Server %s.", in.Players.Busy), Used: true}
	}
	if in.Allocated.By != "" {
		return Verdict{Reason: in.Allocated.By, Used: true}
	}
	since, left := in.left(now)
	if in.KeptAwake.Open {
		return Verdict{Reason: in.KeptAwake.By + " keeps it awake until it is asleep itself.", idleSince: since}
	}
	if kept := in.KeptAwake.Until.Sub(now); kept > 0 {
		return Verdict{
			Reason:       fmt.Sprintf("%s keeps it awake until %s.", in.KeptAwake.By, in.KeptAwake.Until.UTC().Format(time.RFC3339)),
			RequeueAfter: kept, idleSince: since,
		}
	}
	// Reports that keep it awake are asked for again, to find out when they no longer do.
	if reports := in.Players.Reports; in.HasPlayers && (left <= 0 || !reports.Asked.IsZero() && !reports.NobodyPlays()) {
		if v := decideByReports(now, reports); v != nil {
			return *v
		}
	}
	if left > 0 {
		return Verdict{Reason: fmt.Sprintf("It has been idle for less than %s.", in.SleepAfter), RequeueAfter: left, idleSince: since}
	}
	return Verdict{Sleep: true, Reason: fmt.Sprintf("It has been idle for %s.", in.SleepAfter), idleSince: since}
}

// watchTime is how long a process that has just started watches at least before it relies on
// the status for the time before. Shorter idleness isn't kept.
const watchTime = 5 * time.Minute

// left is since when the service has been idle, and how much of sleepAfter is left.
func (in *Signals) left(now time.Time) (since time.Time, left time.Duration) {
	// Who wasn't seen may have used it until UnblockedAt.
	used := times.Latest(in.AwakeSince, in.LastWake, in.LastActive, in.Allocated.Last, in.UnblockedAt)
	seen := times.Latest(used, in.Watched)
	if in.HasPlayers {
		seen = times.Latest(seen, in.Players.IdleSince)
	}
	if in.HasTriggers {
		seen = times.Latest(seen, in.Triggers.BelowSince)
	}
	if in.IdleSince.Sub(seen) > time.Minute {
		seen = in.IdleSince // another process knew more: this one hasn't seen it used
	}
	if in.IdleSince.IsZero() || in.SleepAfter <= watchTime || in.IdleSince.After(seen) || used.After(in.IdleSince) {
		return seen, seen.Add(in.SleepAfter).Sub(now)
	}
	// Nobody is known to have used it since then: another process watched before this one.
	return in.IdleSince, times.Latest(in.IdleSince.Add(in.SleepAfter), seen.Add(watchTime)).Sub(now)
}

// Kept is since when a service has been idle as its status has it, which is written at most
// twice while it is idle; nil: nothing is kept.
func Kept(now time.Time, es *v1alpha1.ElasticService, v Verdict, phase v1alpha1.Phase) *metav1.Time {
	kept := es.Status.IdleSince
	switch {
	case v.Used || phase != v1alpha1.PhaseAwake && phase != v1alpha1.PhaseFallingAsleep || spec.Of(es).SleepAfter <= watchTime:
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

// UntilKept is how long it takes until there is something to keep; 0: there is no need to look.
func UntilKept(now time.Time, sleepAfter time.Duration, v Verdict) time.Duration {
	if v.idleSince.IsZero() || sleepAfter <= watchTime {
		return 0
	}
	return max(0, wholeMinute(v.idleSince).Sub(now))
}

// wholeMinute rounds up, so that idleness is never reported as longer than it is.
func wholeMinute(t time.Time) time.Time { return t.Truncate(time.Minute).Add(time.Minute) }

// decideByReports explains why the Servers' reports keep a service awake; nil when they don't.
func decideByReports(now time.Time, p Reports) *Verdict {
	var reason string
	used := false
	switch {
	case p.Asked.IsZero() || now.Sub(p.Asked) > reportsFor:
		return &Verdict{Reason: "The Servers' reports are looked for.", AskPlayers: true, RequeueAfter: reportsFor}
	case p.NobodyPlays():
		return nil
	case p.Err != nil:
		reason = fmt.Sprintf("Who plays is not known: %v.", p.Err)
	case p.Busy != "":
		reason, used = fmt.Sprintf("Somebody plays on Server %s.", p.Busy), true
	case len(p.Silent) > 0:
		reason, used = fmt.Sprintf("Who plays is not known: %s said nothing lately.", text.Some(p.Silent)), true
	default:
		reason = fmt.Sprintf("A game was just started on %s.", text.Some(p.young))
	}
	return &Verdict{Reason: reason, RequeueAfter: 5 * time.Second, Used: used}
}
