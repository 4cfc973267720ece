package kindwatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
)

// namers are objects that name the kind that is their label.
type namers struct {
	cache.Informers
	*controllertest.FakeInformer
}

func (n namers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return n, nil
}

func (n namers) IsStopped() bool { return false }

func (n namers) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return n.AddEventHandler(h)
}

func (n namers) HasSyncedChecker() toolscache.DoneChecker { return n.FakeInformer.HasSyncedChecker() }

func namer(name, kind string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, Labels: map[string]string{"kind": kind}}}
}

func kindOfLabel(o client.Object) (schema.GroupVersionKind, bool) {
	kind := o.GetLabels()["kind"]
	return gvk(kind), kind != ""
}

func TestKindsAreNamedByTheObjectsOfACache(t *testing.T) {
	informer := namers{FakeInformer: controllertest.NewFakeInformer(controllertest.Synced)}
	runWith(t, Options{namers: informer, Namer: &metav1.PartialObjectMetadata{}, KindOf: kindOfLabel}, func(t *testing.T, k *Kinds, c *cluster) {
		synctest.Wait()
		s := &Source{Kinds: k, Handle: func(context.Context, Change, Queue) {}}
		if err := s.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		informer.Add(namer("one", "A"))
		informer.Add(namer("two", "A"))
		informer.Add(namer("none", ""))
		if err := s.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantWatches(t, c, "A")
		informer.Update(namer("one", "A"), namer("one", "B"))
		informer.Delete(namer("none", ""))
		later(time.Hour)
		wantWatches(t, c, "A", "B")
		informer.Update(namer("two", "A"), namer("two", ""))
		later(grace)
		wantWatches(t, c, "B")
		informer.Delete(namer("one", "B"))
		later(grace)
		wantWatches(t, c)
	})
}

// A controller begins once it is known what is there of the kinds that are named, and its first
// passes see all of that. A kind of which that isn't known soon doesn't keep it.
func TestAControllerWaitsForTheKindsOfItsStartAndNotForLong(t *testing.T) {
	informer := namers{FakeInformer: controllertest.NewFakeInformer(controllertest.Synced)}
	runWith(t, Options{namers: informer, Namer: &metav1.PartialObjectMetadata{}, KindOf: kindOfLabel}, func(t *testing.T, k *Kinds, c *cluster) {
		synctest.Wait()
		c.slow[gvk("Usual")], c.slow[gvk("B")] = true, true
		handled := 0
		s := &Source{Kinds: k, Handle: func(context.Context, Change, Queue) { handled++ }}
		if err := s.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		informer.Add(namer("one", "Usual"))
		informer.Add(namer("two", "B"))
		began := time.Now()
		begun := make(chan error, 1)
		go func() { begun <- s.WaitForSync(t.Context()) }()
		later(time.Second)
		list := func(kind string) {
			on := c.at[gvk(kind)].on
			on.changed(namer("lobby", ""), true)
			on.synced(reader{})
		}
		if len(begun) > 0 || handled > 0 {
			t.Errorf("it begins though nothing is known of a usual kind: %t; %d changes are told", len(begun) > 0, handled)
		}
		list("Usual")
		if err := <-begun; err != nil || handled > 0 {
			t.Errorf("it begins with %v and %d changes that are told; want none of those of the start", err, handled)
		}
		if took := time.Since(began); took >= startTime {
			t.Errorf("it begins after %s, want it not to wait for B", took)
		}
		if list("B"); handled != 1 {
			t.Errorf("%d changes are told of what is listed late, want 1", handled)
		}
	})
}
