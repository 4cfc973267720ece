package wakegroup

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/maintenance"
	"dormouse.dev/dormouse/operator/internal/times"
)

// MaxReached is how many ElasticServices may be reached from one by spec.wakeWith, itself left out:
// so many are looked at in a pass.
const MaxReached = 64

// Other is what counts of another ElasticService.
type Other struct {
	Name  string
	Phase v1alpha1.Phase
	// PhaseSince, SleptUntil and LastWake are as in its status; zero where that has none.
	PhaseSince, SleptUntil, LastWake time.Time
	// KeptAsleep is until when it is kept asleep; zero: it isn't.
	KeptAsleep time.Time
	// KeptAwake reports whether something keeps it awake, or is about to wake it.
	KeptAwake bool
}

// Seen is what a pass saw of the ElasticServices around one.
type Seen struct {
	// Named are those in its spec.wakeWith that count, in that order.
	Named []Other
	// Wakers are those that name it, and count.
	Wakers []Other
	// Missing are the names in spec.wakeWith that aren't there, or are being deleted.
	Missing []string
	// Cycle begins with a name in spec.wakeWith, and each one in it names the next. The last is the
	// ElasticService itself. Nil: there is none.
	Cycle []string
	// TooLarge is set where more than MaxReached are reached: nothing else is known then.
	TooLarge bool
}

// See finds out what counts of the ElasticServices around one. Get reads one of the namespace; nil:
// there is none of that name. Wakers are those that name it. Neither is changed.
func See(es *v1alpha1.ElasticService, get func(name string) (*v1alpha1.ElasticService, error), wakers []v1alpha1.ElasticService) (Seen, error) {
	var s Seen
	r, err := reachFrom(es, get)
	if err != nil || r.tooLarge {
		return Seen{TooLarge: r.tooLarge}, err
	}
	back := r.back(es.Name)
	for _, name := range es.Spec.WakeWith {
		_, cyclic := back[name]
		switch other := r.found[name]; {
		case name == es.Name || cyclic:
			if s.Cycle == nil {
				s.Cycle = cycle(name, es.Name, back)
			}
		case other == nil:
			s.Missing = append(s.Missing, name)
		default:
			s.Named = append(s.Named, otherOf(other))
		}
	}
	for i := range wakers {
		w := &wakers[i]
		// One that is reached from here is on a cycle with this one.
		if w.DeletionTimestamp.IsZero() && w.Name != es.Name && r.found[w.Name] == nil && WakesOthers(w) {
			s.Wakers = append(s.Wakers, otherOf(w))
		}
	}
	return s, nil
}

// WakesOthers reports whether one can be of use to others: its target is there, and it doesn't name too
// many. What its phase was before it lost its target lasts until it has one again.
func WakesOthers(es *v1alpha1.ElasticService) bool {
	has := func(kind, reason string) bool {
		c := meta.FindStatusCondition(es.Status.Conditions, kind)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
	}
	return !has(conditions.TargetFound, reasons.TargetNotFound) && !has(conditions.WakeGroupValid, reasons.WakeGroupTooLarge)
}

func otherOf(es *v1alpha1.ElasticService) Other {
	s := &es.Status
	asleep, _ := maintenance.Until(es.Annotations) // its own condition says what can't be read
	return Other{
		Name: es.Name, KeptAsleep: asleep, Phase: s.Phase, KeptAwake: s.KeptAwake != nil,
		PhaseSince: times.Micro(s.PhaseSince), SleptUntil: times.Micro(s.SleptUntil), LastWake: times.Micro(s.LastWakeTime),
	}
}

// reached are the ElasticServices that one reaches by spec.wakeWith.
type reached struct {
	found map[string]*v1alpha1.ElasticService
	// namedBy are who names each of them, and the first one.
	namedBy  map[string][]string
	tooLarge bool
}

// reachFrom looks at the names in spec.wakeWith, at those that they name, and so on.
func reachFrom(es *v1alpha1.ElasticService, get func(name string) (*v1alpha1.ElasticService, error)) (reached, error) {
	r := reached{found: map[string]*v1alpha1.ElasticService{}, namedBy: map[string][]string{}}
	line := []*v1alpha1.ElasticService{es}
	for len(line) > 0 {
		from := line[0]
		line = line[1:]
		for _, name := range from.Spec.WakeWith {
			if name != es.Name && r.found[name] == nil {
				other, err := get(name)
				if err != nil {
					return r, err
				}
				if other == nil || !other.DeletionTimestamp.IsZero() {
					continue
				}
				if len(r.found) == MaxReached {
					r.tooLarge = true
					return r, nil
				}
				r.found[name] = other
				line = append(line, other)
			}
			r.namedBy[name] = append(r.namedBy[name], from.Name)
		}
	}
	return r, nil
}

// back finds those that lead back to the one with this name: each one's value is the next on its
// way there.
func (r *reached) back(name string) map[string]string {
	next := map[string]string{}
	line := []string{name}
	for len(line) > 0 {
		to := line[0]
		line = line[1:]
		for _, from := range r.namedBy[to] {
			if _, seen := next[from]; !seen && from != name {
				next[from] = to
				line = append(line, from)
			}
		}
	}
	return next
}

// cycle is the way from one name to another.
func cycle(from, to string, next map[string]string) []string {
	names := []string{from}
	for from != to {
		from = next[from]
		names = append(names, from)
	}
	return names
}

// Reached are the names of all that one reaches by spec.wakeWith, as far as they are there, and no
// more than MaxReached.
func Reached(es *v1alpha1.ElasticService, get func(name string) (*v1alpha1.ElasticService, error)) ([]string, error) {
	r, err := reachFrom(es, get)
	names := make([]string, 0, len(r.found))
	for name := range r.found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, err
}
