package gametype

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
)

// statusOf plans for some Fleets and sets the status at a time.
func statusOf(gt *v1alpha1.GameType, at time.Time, o outcome, fleets ...fleet) plan {
	p := makePlan(at, &gt.Spec, fleets, nil, 0)
	setStatus(at, gt, fleets, &p, o, services{})
	return p
}

func gameTypeOf(replicas int32) *v1alpha1.GameType {
	update := step("1", "0")
	update.ProgressDeadline = &metav1.Duration{Duration: 10 * time.Minute}
	return &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Name: "duel", Generation: 1},
		Spec:       v1alpha1.GameTypeSpec{Replicas: &replicas, Update: update},
	}
}

func newest(desired, ready int32) fleet {
	return fleet{name: "duel-b", number: 2, current: true, observed: true, desired: desired, active: desired, ready: ready, players: 3, capacity: 10, message: "No image."}
}

func earlier(desired, ready, draining int32) fleet {
	return fleet{name: "duel-a", number: 1, observed: true, desired: desired, active: desired, ready: ready, draining: draining, players: 4, capacity: 20, allocated: min(1, ready)}
}

func wantCondition(t *testing.T, gt *v1alpha1.GameType, kind string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	c := meta.FindStatusCondition(gt.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || c.Message != message {
		t.Errorf("%s is\n%+v, want\n%s %s %q", kind, c, status, reason, message)
	}
}

func TestTheStatusAddsUpAllRevisions(t *testing.T) {
	gt := gameTypeOf(3)
	statusOf(gt, t0, outcome{}, newest(1, 1), earlier(3, 2, 2))
	got := gt.Status
	got.Conditions, got.LastProgressTime, got.Revisions, got.UpdateRevision = nil, nil, nil, nil
	want := v1alpha1.GameTypeStatus{
		ObservedGeneration: 1, Phase: v1alpha1.PhaseAwake, Replicas: 4, ReadyReplicas: 3, UpdatedReplicas: 1, AllocatedReplicas: 1, DrainingReplicas: 2,
		Players: 7, Capacity: 30, Selector: "dormouse.dev/gametype=duel",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the status (-want +got):\n%s", diff)
	}
	if r := gt.Status.Revisions; len(r) != 2 || r[0] != (v1alpha1.RevisionStatus{Name: "b", Fleet: "duel-b", Number: 2, Replicas: 1, Ready: 1}) ||
		r[1] != (v1alpha1.RevisionStatus{Name: "a", Fleet: "duel-a", Number: 1, Replicas: 3, Ready: 2, Draining: 2}) {
		t.Errorf("the revisions are %+v", r)
	}
}

// An update that gets no further is reported when the deadline has passed, and not
// before; each step forward begins the time anew.
func TestAnUpdateThatGetsNoFurtherIsReported(t *testing.T) {
	gt := gameTypeOf(3)
	if p := statusOf(gt, t0, outcome{}, newest(1, 0), earlier(3, 3, 0)); p.requeueAfter.Duration() != 10*time.Minute {
		t.Errorf("it looks again after %s", p.requeueAfter.Duration())
	}
	wantCondition(t, gt, conditions.Progressing, metav1.ConditionTrue, reasons.Updating,
		"Revision 2 has 0 of 3 Servers ready; 3 of earlier ones take players. Old Servers wait for new ones to get Ready. Fleet duel-b: No image.")
	at := t0.Add(6 * time.Minute)
	statusOf(gt, at, outcome{}, newest(1, 1), earlier(3, 3, 0)) // A step.
	at = at.Add(9 * time.Minute)
	if p := statusOf(gt, at, outcome{}, newest(2, 1), earlier(2, 2, 0)); p.requeueAfter.Duration() != 10*time.Minute {
		t.Errorf("after an old one went it looks again after %s", p.requeueAfter.Duration())
	}
	at = at.Add(9*time.Minute + 59*time.Second)
	statusOf(gt, at, outcome{}, newest(2, 1), earlier(2, 2, 0))
	wantCondition(t, gt, conditions.Progressing, metav1.ConditionTrue, reasons.Updating,
		"Revision 2 has 1 of 3 Servers ready; 2 of earlier ones take players. Old Servers wait for new ones to get Ready. Fleet duel-b: No image.")
	at = at.Add(time.Second)
	statusOf(gt, at, outcome{}, newest(2, 1), earlier(2, 2, 0))
	c := meta.FindStatusCondition(gt.Status.Conditions, conditions.Progressing)
	if c.Status != metav1.ConditionFalse || c.Reason != reasons.DeadlineExceeded || !strings.HasSuffix(c.Message, "Fleet duel-b: No image.") {
		t.Errorf("Progressing is %+v", c)
	}
	gt.Generation++ // Something scales it.
	*gt.Spec.Replicas = 4
	statusOf(gt, at, outcome{}, newest(3, 1), earlier(2, 2, 0))
	if c := meta.FindStatusCondition(gt.Status.Conditions, conditions.Progressing); c.Reason != reasons.DeadlineExceeded {
		t.Errorf("after it was scaled Progressing is %+v", c)
	}
	*gt.Spec.Replicas = 1 // It gives an old one up by that, too.
	statusOf(gt, at, outcome{}, newest(2, 1), earlier(1, 1, 0))
	if c := meta.FindStatusCondition(gt.Status.Conditions, conditions.Progressing); c.Reason != reasons.DeadlineExceeded {
		t.Errorf("after it was scaled down Progressing is %+v", c)
	}
	*gt.Spec.Replicas = 0
	statusOf(gt, at, outcome{}, newest(0, 0), earlier(0, 0, 0))
	*gt.Spec.Replicas = 3
	statusOf(gt, at, outcome{}, newest(3, 0), earlier(0, 0, 0))
	if c := meta.FindStatusCondition(gt.Status.Conditions, conditions.Progressing); c.Status != metav1.ConditionTrue {
		t.Errorf("awake again Progressing is %+v", c)
	}
}

// Its last progress may be days old when a settled GameType is scaled, and its Fleet may not have the number yet.
func TestScalingWhatIsSettledIsNoUpdateThatIsLate(t *testing.T) {
	gt := gameTypeOf(1)
	statusOf(gt, t0, outcome{}, newest(1, 1))
	if got := condition.ReasonOf(gt.Status.Conditions, conditions.Progressing); got != reasons.Updated {
		t.Fatalf("it isn't settled: %s", got)
	}
	*gt.Spec.Replicas = 3
	statusOf(gt, t0.Add(48*time.Hour), outcome{}, newest(1, 1))
	if got := condition.ReasonOf(gt.Status.Conditions, conditions.Progressing); got != reasons.Updating {
		t.Errorf("when it is scaled Progressing says %s", got)
	}
}

func TestARevisionTakesOverOnlyWhenItsServersAreReady(t *testing.T) {
	gt := gameTypeOf(1)
	statusOf(gt, t0, outcome{}, newest(1, 0), earlier(0, 0, 2))
	if gt.Status.CurrentRevision != nil {
		t.Errorf("it is the current one with none Ready")
	}
	statusOf(gt, t0, outcome{}, newest(1, 1), earlier(0, 0, 2))
	if c := gt.Status.CurrentRevision; c == nil || c.Number != 2 {
		t.Errorf("the current revision is %+v", c)
	}
	wantCondition(t, gt, conditions.Progressing, metav1.ConditionTrue, reasons.Updated,
		"All Servers that take players are of revision 2. 2 Servers of earlier ones wait for their players to leave.")
	// One that breaks later is no update.
	statusOf(gt, t0.Add(time.Hour), outcome{}, newest(1, 0))
	wantCondition(t, gt, conditions.Progressing, metav1.ConditionTrue, reasons.Updated, "All Servers that take players are of revision 2.")
	wantCondition(t, gt, conditions.Available, metav1.ConditionFalse, reasons.ServersMissing, "0 of 1 Servers are ready. Fleet duel-b: No image.")
	if gt.Status.Phase != v1alpha1.PhaseWaking {
		t.Errorf("the phase is %s", gt.Status.Phase)
	}
}

// A revision that nobody has seen run isn't said to have taken over, however much
// the game sleeps.
func TestAnUpdateWhileAsleepIsNotTakenForProven(t *testing.T) {
	gt := gameTypeOf(0)
	statusOf(gt, t0, outcome{}, newest(0, 0), earlier(0, 0, 0))
	wantCondition(t, gt, conditions.Progressing, metav1.ConditionTrue, reasons.Asleep, "No Servers are asked for; the next ones are of revision 2.")
	wantCondition(t, gt, conditions.Available, metav1.ConditionTrue, reasons.OK, "No Servers are asked for.")
	if gt.Status.Phase != v1alpha1.PhaseAsleep || gt.Status.CurrentRevision != nil {
		t.Errorf("the phase is %s, the current revision %+v", gt.Status.Phase, gt.Status.CurrentRevision)
	}
	*gt.Spec.Replicas = 2
	gt.Generation++
	statusOf(gt, t0, outcome{}, newest(2, 0), earlier(0, 0, 0))
	if c := meta.FindStatusCondition(gt.Status.Conditions, conditions.Progressing); c.Reason != reasons.Updating {
		t.Errorf("after the wake Progressing is %+v", c)
	}
}

func TestARefusedFleetIsReported(t *testing.T) {
	gt := gameTypeOf(3)
	statusOf(gt, t0, outcome{refused: "exceeded quota"}, earlier(3, 3, 0))
	wantCondition(t, gt, conditions.Progressing, metav1.ConditionFalse, reasons.FleetRefused, "The API server refuses the Fleet of revision 2: exceeded quota")
}

func TestADeletedGameTypeSaysWhatItWaitsFor(t *testing.T) {
	gt := gameTypeOf(3)
	gt.DeletionTimestamp = &metav1.Time{Time: t0}
	fleets := []fleet{earlier(0, 0, 1)}
	setStatus(t0, gt, fleets, &plan{}, outcome{}, services{})
	wantCondition(t, gt, conditions.Progressing, metav1.ConditionFalse, reasons.Draining, "The GameType is being deleted; 1 Server waits for its players to leave.")
	first := gt.Status.DeepCopy()
	setStatus(t0.Add(time.Hour), gt, fleets, &plan{}, outcome{}, services{})
	if !gt.Status.LastProgressTime.Equal(first.LastProgressTime) {
		t.Error("each pass changes the status")
	}
}

// Only a wake's first Servers may be written of later. What else is new is written at once.
func TestWhatIsNewInAGameTypeBesideAStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked         int32 // before
		before, after []fleet
		fresh         bool
		refused       string
		want          bool
	}{
		"the first Server starts":               {before: []fleet{newest(0, 0)}, after: []fleet{newest(1, 0)}, want: true},
		"a GameType that never had a status":    {fresh: true, after: []fleet{newest(1, 0)}},
		"the first Server is ready":             {before: []fleet{newest(0, 0)}, after: []fleet{newest(1, 1)}},
		"another Server starts":                 {asked: 1, before: []fleet{newest(1, 0)}, after: []fleet{newest(2, 0)}},
		"an update begins":                      {before: []fleet{earlier(0, 0, 0)}, after: []fleet{earlier(0, 0, 0), newest(1, 0)}},
		"a Server of an earlier revision drain": {before: []fleet{newest(0, 0), earlier(0, 0, 1)}, after: []fleet{newest(1, 0), earlier(0, 0, 1)}},
		"a Fleet is refused":                    {before: []fleet{newest(0, 0)}, after: []fleet{newest(1, 0)}, refused: "quota"},
	} {
		gt := gameTypeOf(c.asked)
		if !c.fresh {
			gt.Status.ObservedGeneration = 1
			current := newest(0, 0)
			gt.Status.UpdateRevision = &v1alpha1.Revision{Name: revisionName(gt, current.name), Number: 2}
			gt.Status.CurrentRevision = gt.Status.UpdateRevision.DeepCopy()
			statusOf(gt, t0, outcome{}, c.before...)
		}
		before := gt.Status.DeepCopy()
		gt.Spec.Replicas = new(c.asked + 1)
		gt.Generation++
		statusOf(gt, t0, outcome{refused: c.refused}, c.after...)
		if got := onlyStarts(before, &gt.Status); got != c.want {
			t.Errorf("%s: only a start is new: %t, want %t\n%+v\n%+v", name, got, c.want, before, gt.Status)
		}
	}
}
