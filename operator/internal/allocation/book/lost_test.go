package book_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// answered is an Allocation as a write of what is decided of it leaves it.
func (w *world) answered(name string) *v1alpha1.Allocation {
	w.t.Helper()
	o, d := w.Decided(keyOf(name))
	if d == nil {
		w.t.Fatalf("nothing is decided of %s", name)
	}
	written := o.DeepCopy()
	written.Status = d.Status(&written.Status)
	written.ResourceVersion = w.next()
	return written
}

// An Allocation that was deleted while its status was written is gone, though the answer to the write
// comes after the word of the deletion.
func TestALateAnswerBringsNothingBack(t *testing.T) {
	w := newWorld(t)
	s := w.server("one")
	w.ask("a", ttl(time.Minute))
	written := w.answered("a")
	w.SetAllocation(written, false)
	gone := written.DeepCopy()
	gone.ResourceVersion = w.next()
	w.DeleteAllocation(gone)
	w.Written(written)
	if h := w.HolderOf(s.Namespace, s.Name, s.UID); h.Name != "" {
		t.Errorf("the Server is had by %+v", h)
	}
	if !w.Withdraw(namespace, "one") {
		t.Error("the Server can't be taken away")
	}
}

// Nor does the list by which a new leader begins.
func TestAListBringsNothingBack(t *testing.T) {
	w := newWorld(t)
	s := w.server("one")
	w.ask("a")
	written := w.answered("a")
	w.SetAllocation(written, false)
	w.CatchUp()
	w.DeleteAllocation(written)
	w.SetAllocation(written, true)
	w.Lead()
	if h := w.HolderOf(s.Namespace, s.Name, s.UID); h.Any() {
		t.Errorf("the Server is had by %+v", h)
	}
}

// What a new leader's cache doesn't show yet is to be asked for, and shows itself later.
func TestAServerThatIsSeenLaterIsNotGone(t *testing.T) {
	w := newWorld(t)
	s := w.server("one")
	w.ask("a")
	w.stored["a"] = w.answered("a")
	delete(w.servers, "one")
	w.restart()
	if _, d := w.Decided(keyOf("a")); d == nil || !d.Unsure || d.State != v1alpha1.AllocationExpired {
		t.Fatalf("of a Server that isn't there %+v is decided, want that it is gone, without being sure", d)
	}
	w.servers["one"] = s
	w.SetServer(s)
	if _, d := w.Decided(keyOf("a")); d != nil {
		t.Errorf("once the Server is there %+v is decided", d)
	}
	w.deleteServer("one")
	if _, d := w.Decided(keyOf("a")); d == nil || d.Unsure {
		t.Errorf("once it is gone %+v is decided, want that it is gone for sure", d)
	}
}

// A new leader refuses no more than it must where too many wait.
func TestANewLeaderRefusesNoMoreThanItMust(t *testing.T) {
	w := newWorld(t)
	const all, most = 1500, 1000
	name := func(n int) string { return fmt.Sprintf("a%04d", n) }
	for n := range all {
		a := &v1alpha1.Allocation{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name(n), UID: types.UID(name(n)), CreationTimestamp: metav1.NewTime(w.now.Add(time.Duration(n) * time.Millisecond))},
			Spec:       v1alpha1.AllocationSpec{TargetRef: &v1alpha1.AllocationTarget{Name: "duel"}, Wait: &metav1.Duration{Duration: time.Minute}},
		}
		a.ResourceVersion = w.next()
		w.stored[a.Name] = a
	}
	w.restart()
	refused := 0
	for n := range all {
		if _, d := w.Decided(keyOf(name(n))); d != nil && d.State == v1alpha1.AllocationRefused {
			refused++
		}
	}
	if refused != all-most {
		t.Errorf("%d are refused, want %d", refused, all-most)
	}
}

// Labels that no Server can have spoil nobody's question.
func TestQuestionsAreToldApart(t *testing.T) {
	w := newWorld(t)
	w.server("one", func(s *v1alpha1.Server) { s.Labels["a"], s.Labels["b"] = "x", "y" })
	for name, labels := range map[string]map[string]v1alpha1.LabelValue{"odd": {"a": "x\nb\ny"}, "quoted": {"a": `x"b"y`}} {
		w.ask(name, func(s *v1alpha1.AllocationSpec) { s.Selector = &v1alpha1.AllocationSelector{MatchLabels: labels} })
	}
	w.ask("good", func(s *v1alpha1.AllocationSpec) {
		s.Selector = &v1alpha1.AllocationSelector{MatchLabels: map[string]v1alpha1.LabelValue{"a": "x", "b": "y"}}
	})
	if _, d := w.Decided(keyOf("good")); d == nil || d.State != v1alpha1.AllocationAllocated {
		t.Errorf("the Server that is free isn't given: %+v", d)
	}
}

// A Fleet of another API group that sleeps is not the Fleet of that name.
func TestAnotherGroupsFleetSleepsForItself(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other", ResourceVersion: w.next()}}
	es.Spec.Service = "other"
	es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: "agones.dev/v1", Kind: "GameType", Name: "duel"}
	es.Status.Phase = v1alpha1.PhaseAsleep
	w.SetService(es)
	w.ask("a")
	if _, d := w.Decided(keyOf("a")); d == nil || d.State != v1alpha1.AllocationAllocated {
		t.Errorf("the Server that is free isn't given: %+v", d)
	}
	if wakes := w.Wakes(); len(wakes) > 0 {
		t.Errorf("%v are woken", wakes)
	}
}

// An ElasticService that names another target leaves the one before as if it had never been there.
func TestAServiceThatMovesLeavesItsTarget(t *testing.T) {
	w := newWorld(t)
	w.server("one")
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "es", ResourceVersion: w.next()}}
	es.Spec.Service = "duel"
	es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: "duel"}
	es.Status.Phase = v1alpha1.PhaseAsleep
	w.SetService(es)
	if n := w.Free(namespace, "GameType", "duel"); n != 0 {
		t.Fatalf("of a target that sleeps %d Servers can be given", n)
	}
	moved := es.DeepCopy()
	moved.Spec.ScaleTargetRef.Name, moved.ResourceVersion = "chess", w.next()
	w.SetService(moved)
	if n := w.Free(namespace, "GameType", "duel"); n != 1 {
		t.Errorf("once the service has moved %d Servers can be given, want 1", n)
	}
	w.SetService(es)
	w.DeleteService(es)
	if n := w.Free(namespace, "GameType", "duel"); n != 1 {
		t.Errorf("once the service is gone %d Servers can be given, want 1", n)
	}
}
