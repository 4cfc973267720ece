package allocation_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// ahead reads the API server, which is ahead of the cache.
type ahead struct {
	client.Reader
	// get reads a Server, and listed is called once all Allocations were listed; nil: as the API server has it.
	get    func(*v1alpha1.Server) error
	listed func(context.Context)
}

func (a ahead) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if s, ok := o.(*v1alpha1.Server); ok && a.get != nil {
		return a.get(s)
	}
	return a.Reader.Get(ctx, key, o, opts...)
}

func (a ahead) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := a.Reader.List(ctx, list, opts...)
	if a.listed != nil {
		a.listed(ctx)
	}
	return err
}

// taken gives a Server to an Allocation, by a leader that is gone then.
func (w *world) taken() *v1alpha1.Server {
	w.t.Helper()
	w.server("one", 0)
	leader := w.replica(true)
	w.seen(leader, 1)
	w.make("match")
	w.becomes("match", v1alpha1.AllocationAllocated, reasons.OK)
	leader.stop()
	s := &v1alpha1.Server{}
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "one"}, s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// A new leader may not see yet that the game of a Server runs which the one before has given away.
func TestALeaderWhoseCacheLagsTakesNoServerAway(t *testing.T) {
	w := newWorld(t)
	server := w.taken()
	given := server.DeepCopy()
	w.change(server, func(st *v1alpha1.ServerStatus) { st.Game.PodUID = "earlier" })
	var asked atomic.Int32
	w.live = ahead{Reader: w.Admin, get: func(s *v1alpha1.Server) error {
		asked.Add(1)
		given.DeepCopyInto(s)
		return nil
	}}
	leader := w.replica(true)
	fixture.Eventually(t, promptly, "the leader has asked for the Server, and once more", func(context.Context) error {
		return fixture.WantEqual("questions are two", asked.Load() >= 2, true)
	})
	w.becomes("match", v1alpha1.AllocationAllocated, reasons.OK)
	// The cache catches up.
	w.change(server, func(st *v1alpha1.ServerStatus) { st.Game.PodUID = given.Status.Game.PodUID })
	w.make("other")
	w.becomes("other", v1alpha1.AllocationRefused, reasons.NoServerFree)
	w.becomes("match", v1alpha1.AllocationAllocated, reasons.OK)
	// By now the cache is believed.
	before := asked.Load()
	w.change(server, func(st *v1alpha1.ServerStatus) { st.Game.PodUID = "later" })
	w.becomes("match", v1alpha1.AllocationExpired, reasons.ServerGone)
	if n := asked.Load() - before; n > 1 {
		t.Errorf("the leader has asked %d times more for a Server that its cache had shown", n)
	}
	w.seen(leader, 1)
}

func TestALeaderEndsAnAllocationWhoseServerIsGone(t *testing.T) {
	w := newWorld(t)
	server := w.taken()
	w.live = w.Admin
	server.Finalizers = nil
	if err := w.Admin.Delete(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	w.replica(true)
	w.becomes("match", v1alpha1.AllocationExpired, reasons.ServerGone)
}

// The list by which a leader begins may have an Allocation of which the cache has shown that it is gone.
func TestAListBringsNoAllocationBack(t *testing.T) {
	w := newWorld(t)
	server := w.taken()
	held := func() bool { return w.allocator.HolderOf(w.Namespace, server.Name, server.UID).Any() }
	w.live = ahead{Reader: w.Admin, listed: func(ctx context.Context) {
		if !held() {
			return // the list was asked for again
		}
		match := &v1alpha1.Allocation{}
		match.Namespace, match.Name = w.Namespace, "match"
		if err := w.Admin.Delete(ctx, match); err != nil {
			t.Error(err)
		}
		for held() && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}}
	w.replica(true)
	w.make("other")
	w.becomes("other", v1alpha1.AllocationAllocated, reasons.OK)
}
