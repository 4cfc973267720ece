// Package wakegroup decides what spec.wakeWith asks for: for which other ElasticServices one waits,
// and which of them keep it awake, or wake it. It is a function of what was seen of them and of the
// time.
//
// Each one looks at its neighbours alone. One that another wakes is itself waking, and so wakes those
// that it names. Names that lead back to where they began count for nothing in both directions: the
// ElasticServices on such a cycle would wait for each other, and keep each other awake, for ever.
// Who names this one is on a cycle with it if it is reached from here, so that both sides see the
// same without telling each other.
package wakegroup

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/awake"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/text"
	"dormouse.dev/dormouse/operator/internal/times"
)

const (
	// defaultHold is hold.timeout where the object came without the API server's default, and how
	// long clients are held for others' sake where they are held for ever.
	defaultHold = 5 * time.Minute
	// stampedFor is for how long a client's wake counts while the phase is still Asleep: the pass
	// that it causes makes that Waking. A wake that failed is none.
	stampedFor = 10 * time.Second
)

// Verdict is Decide's result.
type Verdict struct {
	// WaitsFor are the names of those that aren't up, for which one that sleeps or wakes waits.
	WaitsFor []string
	// Bound is for how long it waits for them at most.
	Bound time.Duration
	// By is the ElasticService that keeps this one awake; empty: none does.
	By string
	// Wakes reports whether a target that is at zero is to be woken for that.
	Wakes bool
	// Next is when the verdict may change though no object does; zero: never.
	Next time.Time
	// Flaw is the first name that counts for nothing, or those that came too late; nil: there are
	// none.
	Flaw *obstacle.Obstacle
}

// Decide decides for whom an ElasticService waits, and who keeps it awake.
func Decide(now time.Time, es *v1alpha1.ElasticService, seen Seen) Verdict {
	// Clients are held for the others' sake: the rest of hold.timeout is for the service's own answer.
	v := Verdict{Bound: defaultHold / 2}
	if t := es.Spec.Hold.Timeout; t != nil && t.Duration > 0 {
		v.Bound = t.Duration / 2
	}
	missed := v.decideWaits(now, es, seen)
	v.decideKept(now, es, seen)
	v.Flaw = flawOf(es, seen, missed, v.Bound)
	return v
}

// missed are names of others that a service that isn't asleep goes without.
type missed struct {
	// late are those that should be up by now, and asleep those that are kept asleep.
	late, asleep []string
}

// decideWaits finds those that aren't up, and returns those that aren't waited for.
func (v *Verdict) decideWaits(now time.Time, es *v1alpha1.ElasticService, seen Seen) (m missed) {
	since, wakes := times.Micro(es.Status.SleptUntil), es.Status.Phase == v1alpha1.PhaseWaking
	if wakes {
		since = times.Latest(since, times.Micro(es.Status.PhaseSince))
	}
	ends := since.Add(v.Bound)
	for _, other := range seen.Named {
		if other.Phase == v1alpha1.PhaseAwake {
			continue
		}
		if other.Phase == v1alpha1.PhaseAsleep && now.Before(other.KeptAsleep) {
			v.changesAt(other.KeptAsleep)
			if leftSleep(es.Status.Phase) {
				m.asleep = append(m.asleep, other.Name)
			}
			continue
		}
		if !wakes || now.Before(ends) {
			v.WaitsFor = append(v.WaitsFor, other.Name)
		}
		if !leftSleep(es.Status.Phase) {
			continue
		}
		// One that was up meanwhile has as long again.
		due := times.Latest(since, other.PhaseSince).Add(v.Bound)
		if !now.Before(due) {
			m.late = append(m.late, other.Name)
			continue
		}
		v.changesAt(due)
		if wakes && now.Before(ends) {
			v.changesAt(ends)
		}
	}
	return m
}

// leftSleep reports whether a service in a phase has left its sleep.
func leftSleep(p v1alpha1.Phase) bool { return p != "" && p != v1alpha1.PhaseAsleep }

// decideKept finds who keeps the service awake: the one that does so by its status, if it still
// does, or else the first by its name.
func (v *Verdict) decideKept(now time.Time, es *v1alpha1.ElasticService, seen Seen) {
	var begun time.Time
	var first, still string
	for i := range seen.Wakers {
		w := &seen.Wakers[i]
		since, ends, ok := w.woke(now)
		if !ok {
			continue
		}
		if !ends.IsZero() {
			v.changesAt(ends)
		}
		begun = times.Latest(begun, since)
		by := "ElasticService " + w.Name
		if kept := es.Status.KeptAwake; kept != nil && kept.By == by {
			still = by
		}
		if first == "" || by < first {
			first = by
		}
	}
	v.By = cmp.Or(still, first)
	v.Wakes = v.By != "" && !awake.ScaledByHand(es, begun)
}

// woke reports whether another one isn't asleep, or is just being woken; since is when that began,
// and ends is when it may not be so any more though the object doesn't change; zero: never.
func (o *Other) woke(now time.Time) (since, ends time.Time, ok bool) {
	switch {
	case leftSleep(o.Phase):
		return o.SleptUntil, time.Time{}, true
	case o.Phase != v1alpha1.PhaseAsleep:
	case o.KeptAwake:
		// Whom somebody has scaled to zero since follows once it wakes indeed, which it may not be
		// able to.
		return o.PhaseSince, time.Time{}, true
	case o.LastWake.After(o.PhaseSince) && now.Before(o.LastWake.Add(stampedFor)):
		return o.LastWake, o.LastWake.Add(stampedFor), true
	}
	return since, ends, false
}

// flawOf is what to change in spec.wakeWith, or around it; nil: nothing.
func flawOf(es *v1alpha1.ElasticService, seen Seen, m missed, bound time.Duration) *obstacle.Obstacle {
	switch {
	case seen.TooLarge:
		return obstacle.New(reasons.WakeGroupTooLarge,
			"More than %d ElasticServices are reached by spec.wakeWith, and by the names in theirs, so that it counts for nothing, and nobody who names this one wakes it: name fewer.", MaxReached)
	case len(seen.Cycle) > 0:
		return obstacle.New(reasons.WakeGroupCycle,
			"spec.wakeWith names %s, which counts for nothing, because it wakes this one in turn (%s): remove one of these names from the spec.wakeWith of the one before it.",
			seen.Cycle[0], way(es.Name, seen.Cycle))
	case len(seen.Missing) > 0:
		return obstacle.New(reasons.ElasticServiceNotFound,
			"spec.wakeWith names %s, which counts for nothing, because namespace %s has no such ElasticService, or it is being deleted: create it, or remove the name.",
			text.Some(seen.Missing), es.Namespace)
	case len(m.asleep) > 0:
		return obstacle.New(reasons.KeptAsleep,
			"The service is awake without others in spec.wakeWith that are kept asleep (%s): remove their annotation %s once they may be woken.", text.Some(m.asleep), wellknown.KeepAsleepUntilAnnotation)
	case len(m.late) > 0:
		return obstacle.New(reasons.OthersNotUp,
			"The service is awake without others in spec.wakeWith that aren't up after %s (%s): look at the conditions of those.", bound, text.Some(m.late))
	}
	return nil
}

// way describes a cycle, in the middle shortened.
func way(from string, names []string) string {
	const most = 8
	if len(names) > most {
		names = slices.Concat(names[:most-2], []string{"..."}, names[len(names)-1:])
	}
	return strings.Join(append([]string{from}, names...), ", ")
}

// changesAt notes when the verdict may change.
func (v *Verdict) changesAt(t time.Time) { v.Next = times.Earliest(v.Next, t) }
