package planner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// startingFor is a Server whose Pod was made some time ago, and whose status has said since then
// that it starts.
func startingFor(age time.Duration, changes ...func(*world)) *world {
	w := newWorld(silent, func(w *world) {
		w.server.Generation = 1
		w.server.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		w.o.Pod.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		w.o.Pod.Status.Conditions = nil
	})
	p := Make(noon, w.server, w.o)
	SetStatus(noon, w.server, w.o, p, w.portTrouble)
	for _, change := range changes {
		change(w)
	}
	return w
}

// unwritten takes away what earlier passes wrote.
func unwritten(w *world) { w.server.Status = v1alpha1.ServerStatus{} }

// A start is written a little later, if nothing is new but its steps. What counts for a later
// pass, for somebody who waits or for a person is written at once.
func TestWhatAStartMayLeaveUnwritten(t *testing.T) {
	unscheduled := func(w *world) {
		w.o.Pod.Spec.NodeName, w.o.Pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
	}
	tooLarge := func(w *world) {
		unscheduled(w)
		w.o.Pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available: 2 Insufficient cpu.",
		}}
	}
	for name, c := range map[string]struct {
		world *world
		want  time.Duration
	}{
		"a step of a start":                       {startingFor(4 * time.Second), 6 * time.Second},
		"a start that takes long":                 {startingFor(10 * time.Second), 0},
		"a Pod that ended":                        {startingFor(4*time.Second, podEnded), 0},
		"a game that asks for its end":            {startingFor(4*time.Second, func(w *world) { w.say(v1alpha1.GameShutdown, 0) }), 0},
		"a changed spec":                          {startingFor(4*time.Second, func(w *world) { w.server.Generation++ }), 0},
		"a clock that is behind the API server's": {startingFor(-time.Minute), 0},
		"a new Server whose Pod has no node":      {startingFor(time.Second, unwritten, unscheduled), 9 * time.Second},
		"one that has had none for long":          {startingFor(10*time.Second, unwritten, unscheduled), 0},
		"a new Server whose Pod fits on no node":  {startingFor(time.Second, unwritten, tooLarge), 2 * time.Second},
		"one that has fit on none for long":       {startingFor(3*time.Second, unwritten, tooLarge), 0},
		"a new Server that starts":                {startingFor(time.Second, unwritten), 2 * time.Second},
		"one that has started for longer":         {startingFor(3*time.Second, unwritten), 0},
		"a new Server with a port on its node": {startingFor(time.Second, unwritten, func(w *world) {
			w.server.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7777, Expose: v1alpha1.ExposeHostPort}}
		}), 0},
		"a new Server whose game asks for itself": {startingFor(time.Second, unwritten, func(w *world) { w.server.Spec.Readiness = v1alpha1.ServerReadinessSDK }), 0},
		"a deleted Server on which nobody plays": {newWorld(deleted(-4), func(w *world) {
			w.server.Generation, w.server.Status.ObservedGeneration = 2, 1 // as the API server has it
		}), 6 * time.Second},
		"one that takes long to go":                   {newWorld(deleted(-10)), 0},
		"a deleted Server with players":               {newWorld(deleted(-4), players(1)), 0},
		"a deleted Server whose status denies it yet": {newWorld(deleted(-4), crashed, func(w *world) { w.server.Status.DeletionAllowed = false }), 0},
		"a stopped Server on which nobody plays":      {newWorld(stopped), 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.world.server.DeepCopy()
			p := Make(noon, c.world.server, c.world.o)
			SetStatus(noon, c.world.server, c.world.o, p, c.world.portTrouble)
			if got := max(0, Debounce(noon, before, c.world.server, c.world.o, p)); got != c.want {
				t.Errorf("the status %s (%+v) may wait for %s, want %s", c.world.server.Status.State, readyOf(c.world.server), got, c.want)
			}
		})
	}
}
