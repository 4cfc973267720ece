// Package awake decides until when an ElasticService's windows and its annotation keep it awake,
// and whether one that sleeps is to be woken for that. It is a function of the object and of the
// time.
//
// A service that sleeps is woken so long before a window as its last wake took, so that it is up
// when the window opens, and up to spread earlier, so that not all are woken at once. Inside of a window Dormouse doesn't put it to sleep. So a target that is
// at zero there, and that Dormouse hasn't put to sleep, was scaled by somebody else, who is
// obeyed until a window opens next. The annotation is somebody's word, too, and the later one:
// it wakes the service in any case. Another annotation keeps the service asleep: it takes precedence
// over everything here.
package awake

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/maintenance"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/schedule"
	"dormouse.dev/dormouse/operator/internal/times"
)

// maxAhead bounds how long before a window a service is woken: a single wake that took hours,
// because its image could not be pulled, is not how long they usually take.
const maxAhead = 15 * time.Minute

// spread is within which time the services of a window are woken that are woken ahead of it: all at
// once thousands would have players wait for their passes.
const spread = 30 * time.Second

// Verdict is Decide's result.
type Verdict struct {
	// Until is until when the service is kept awake; zero: nothing keeps it awake. By is what
	// does.
	Until time.Time
	By    string
	// Asleep is until when an annotation keeps the service asleep: nothing wakes it, or keeps it
	// awake; zero: none does.
	Asleep time.Time
	// Next is when the verdict may change though the object doesn't; zero: never.
	Next time.Time
	// Opens is when a window opens next, and OpensBy is which; zero: none does.
	Opens   time.Time
	OpensBy string
	// Flaw is the first window, or the annotation, that can't be read, and counts for nothing;
	// nil: there is none.
	Flaw *obstacle.Obstacle

	// begun is since when the service has been kept awake by the newest window, the time ahead
	// of it included.
	begun time.Time
	// annotated reports whether the annotation keeps it awake.
	annotated bool
}

// Decide decides until when a service is kept awake.
func Decide(now time.Time, es *v1alpha1.ElasticService) Verdict {
	var v Verdict
	if len(es.Spec.Awake) > 0 {
		v.decideByWindows(now, es)
	}
	if len(es.Annotations) > 0 {
		v.decideByAnnotations(now, es)
	}
	return v
}

// decideByWindows goes by spec.awake.
func (v *Verdict) decideByWindows(now time.Time, es *v1alpha1.ElasticService) {
	windows, names := v.windowsOf(es)
	if len(windows) == 0 {
		return
	}
	if opening, open := schedule.Open(now, windows...); open {
		v.keep(now, es, opening, opening.Begun, names)
	}
	opens, which, ok := schedule.Next(now, windows...)
	if !ok {
		v.changesAt(now.Add(schedule.LookAgain))
		return
	}
	v.Opens, v.OpensBy = opens, names[which]
	begin := opens.Add(-ahead(es, opens))
	if now.Before(begin) {
		v.changesAt(begin)
		return
	}
	v.changesAt(opens)
	if opening, open := schedule.Open(opens, windows...); open {
		v.keep(now, es, opening, begin, names)
	}
}

// keep takes in that windows keep the service awake, since begun.
func (v *Verdict) keep(now time.Time, es *v1alpha1.ElasticService, opening schedule.Opening, begun time.Time, names []string) {
	v.begun = times.Latest(v.begun, begun)
	closes, by := opening.Closes, names[opening.Last]
	if kept := es.Status.KeptAwake; opening.AtLeast && kept != nil && kept.Until != nil && kept.Until.After(now) && kept.Until.Time.Before(closes) && slices.Contains(names, kept.By) {
		closes, by = kept.Until.In(closes.Location()), kept.By // windows without an end: it need not be told anew each minute
	}
	v.changesAt(closes)
	if closes.After(v.Until) {
		v.Until, v.By = closes, by
	}
}

// windowsOf are the windows that can be read, and their names.
func (v *Verdict) windowsOf(es *v1alpha1.ElasticService) (windows []schedule.Window, names []string) {
	for i := range es.Spec.Awake {
		name := fmt.Sprintf("awake[%d]", i)
		window, err := schedule.Parse(es.Spec.Awake[i])
		if err != nil {
			v.note(reasons.ScheduleInvalid, "spec.%s counts for nothing, because its %v: correct it.", name, err)
			continue
		}
		windows, names = append(windows, window), append(names, name)
	}
	return windows, names
}

// ahead is how long before a window a service is woken. One that was woken for the window
// already is kept awake though its wake took less time than the one before.
func ahead(es *v1alpha1.ElasticService, opens time.Time) time.Duration {
	if kept := es.Status.KeptAwake; kept != nil && kept.Until != nil && !kept.Until.Time.Before(opens) {
		return maxAhead
	}
	if last := es.Status.LastWake; last != nil && last.Took.Duration > 0 {
		return min(last.Took.Duration+earlier(es), maxAhead)
	}
	return 0
}

// earlier is how much earlier a service is woken than it need be: always as much, and each another.
func earlier(es *v1alpha1.ElasticService) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(es.UID)) // never fails
	return time.Duration(h.Sum32()%uint32(spread/time.Millisecond)) * time.Millisecond
}

// decideByAnnotations goes by the annotation that keeps the service awake, and the one that keeps it
// asleep.
func (v *Verdict) decideByAnnotations(now time.Time, es *v1alpha1.ElasticService) {
	until, err := maintenance.ParseTime(es.Annotations, wellknown.KeepAwakeUntilAnnotation)
	if err != nil {
		v.noteAnnotation(err)
	}
	if until.After(now) {
		v.annotated = true
		v.changesAt(until)
		if until.After(v.Until) {
			v.Until, v.By = until, "the annotation "+wellknown.KeepAwakeUntilAnnotation
		}
	}
	asleep, err := maintenance.Until(es.Annotations)
	if err != nil {
		v.noteAnnotation(err)
	}
	if asleep.After(now) {
		v.Asleep = asleep
		v.changesAt(asleep)
		v.Until, v.By, v.annotated = time.Time{}, "", false
	}
}

// noteAnnotation notes that an annotation can't be read.
func (v *Verdict) noteAnnotation(err error) {
	v.note(reasons.AnnotationInvalid, "The %s, and counts for nothing: correct or remove it.", err)
}

// Wakes reports whether a target that is at zero is to be woken.
func (v *Verdict) Wakes(es *v1alpha1.ElasticService) bool {
	switch {
	case v.Until.IsZero():
		return false
	case v.annotated:
		return true
	}
	return !ScaledByHand(es, v.begun)
}

// ScaledByHand reports whether somebody else than Dormouse has scaled the target to zero since a
// time. Dormouse writes the phase first, and which target it puts to sleep.
func ScaledByHand(es *v1alpha1.ElasticService, since time.Time) bool {
	s := &es.Status
	if s.Phase != "" && s.Phase != v1alpha1.PhaseAsleep {
		return true // just now
	}
	return s.AsleepTarget == nil && s.ReplicasBeforeSleep > 0 && !times.Micro(s.LastSleepTime).Before(since)
}

// changesAt notes when the verdict may change.
func (v *Verdict) changesAt(t time.Time) { v.Next = times.Earliest(v.Next, t) }

// note notes what can't be read, unless there is something.
func (v *Verdict) note(reason, format string, args ...any) {
	if v.Flaw == nil {
		v.Flaw = obstacle.New(reason, format, args...)
	}
}
