package book_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
)

const namespace = "games"

// world is a book, and the cluster whose cache it follows.
type world struct {
	*book.Book
	t       testing.TB
	now     time.Time
	version int
	decided map[types.NamespacedName]bool
	held    map[string]int
	// unused is how often each ElasticService's target was said to be used no more.
	unused map[string]int
	// stored are the Allocations, and servers the Servers, as the API server has them.
	stored  map[string]*v1alpha1.Allocation
	servers map[string]*v1alpha1.Server
}

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, now: time.Unix(1000000, 0), version: 1, decided: map[types.NamespacedName]bool{}, held: map[string]int{}, unused: map[string]int{},
		stored: map[string]*v1alpha1.Allocation{}, servers: map[string]*v1alpha1.Server{},
	}
	w.restart()
	return w
}

// restart begins with an empty book, which gets all there is.
func (w *world) restart() {
	w.decided = map[types.NamespacedName]bool{}
	w.Book = book.New(func() time.Time { return w.now }, book.Hooks{
		Decided: func(key types.NamespacedName) { w.decided[key] = true },
		Held:    func(key types.NamespacedName) { w.held[key.Name]++ },
		Unused:  func(key types.NamespacedName) { w.unused[key.Name]++ },
		Wakes:   func() {},
	})
	for _, a := range w.stored {
		w.SetAllocation(a, true)
	}
	for _, s := range w.servers {
		w.SetServer(s)
	}
	w.Lead()
}

func (w *world) next() string {
	w.version++
	return strconv.Itoa(w.version)
}

// server makes a Ready Server of GameType duel, or changes it.
func (w *world) server(name string, change ...func(*v1alpha1.Server)) *v1alpha1.Server {
	s := w.servers[name]
	if s == nil {
		s = &v1alpha1.Server{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID(name + w.next()),
				Labels: map[string]string{wellknown.GameTypeLabel: "duel", wellknown.FleetLabel: "duel-1"},
			},
			Status: v1alpha1.ServerStatus{
				State: v1alpha1.ServerReady, Address: "192.0.2.1", NodeName: "node-1",
				Game:       &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: "pod-" + w.next()},
				Players:    &v1alpha1.PlayersStatus{Capacity: 10},
				Conditions: []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionTrue}},
			},
		}
	}
	s = s.DeepCopy()
	s.ResourceVersion = w.next()
	for _, f := range change {
		f(s)
	}
	w.servers[name] = s
	w.SetServer(s)
	return s
}

func (w *world) deleteServer(name string) {
	s := w.servers[name]
	delete(w.servers, name)
	w.DeleteServer(s)
}

// ask makes an Allocation of GameType duel.
func (w *world) ask(name string, change ...func(*v1alpha1.AllocationSpec)) {
	a := &v1alpha1.Allocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + w.next()), CreationTimestamp: metav1.NewTime(w.now.Truncate(time.Second))},
		Spec:       v1alpha1.AllocationSpec{TargetRef: &v1alpha1.AllocationTarget{Name: "duel"}},
	}
	a.ResourceVersion = w.next()
	for _, f := range change {
		f(&a.Spec)
	}
	w.stored[name] = a
	w.SetAllocation(a, false)
}

func places(n int32) func(*v1alpha1.AllocationSpec) {
	return func(s *v1alpha1.AllocationSpec) { s.Players = n }
}

func waits(d time.Duration) func(*v1alpha1.AllocationSpec) {
	return func(s *v1alpha1.AllocationSpec) { s.Wait = &metav1.Duration{Duration: d} }
}

func ttl(d time.Duration) func(*v1alpha1.AllocationSpec) {
	return func(s *v1alpha1.AllocationSpec) { s.TTL = &metav1.Duration{Duration: d} }
}

func distributed(s *v1alpha1.AllocationSpec) {
	s.Preference.Strategy = v1alpha1.AllocationDistributed
}

func (w *world) delete(name string) {
	a := w.stored[name]
	delete(w.stored, name)
	w.DeleteAllocation(a)
}

// write writes what was decided of an Allocation, and has the cache show it.
func (w *world) write(name string) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	_, d := w.Decided(key)
	delete(w.decided, key)
	if d == nil || w.stored[name] == nil {
		return
	}
	if d.Delete {
		w.delete(name)
		return
	}
	a := w.stored[name].DeepCopy()
	a.Status = d.Status(&a.Status)
	a.Status.ObservedGeneration = a.Generation
	if !d.Observed {
		a.Status.Conditions = []metav1.Condition{{Type: conditions.Allocated, Reason: d.Reason, Message: d.Message}}
	}
	a.ResourceVersion = w.next()
	w.stored[name] = a
	w.SetAllocation(a, false)
}

// writeAll writes until there is nothing left.
func (w *world) writeAll() {
	for len(w.decided) > 0 {
		for key := range w.decided {
			w.write(key.Name)
		}
	}
}

// is formats what became of an Allocation: its state, and its Server or the reason.
func (w *world) is(name string) string {
	w.writeAll()
	a := w.stored[name]
	switch {
	case a == nil:
		return "gone"
	case a.Status.State == v1alpha1.AllocationAllocated:
		return "on " + a.Status.ServerName
	case a.Status.State == "":
		return "waits"
	}
	return fmt.Sprintf("%s: %s", a.Status.State, a.Status.Conditions[0].Reason)
}

func (w *world) want(name, want string) {
	w.t.Helper()
	if got := w.is(name); got != want {
		w.t.Errorf("%s is %q, want %q", name, got, want)
	}
}

// passes lets time pass.
func (w *world) passes(d time.Duration) {
	w.now = w.now.Add(d)
	w.Tick()
}
