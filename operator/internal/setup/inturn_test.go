package setup

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// oneInformer is a cache with one informer.
type oneInformer struct {
	cache.Cache
	informer *oneByOne
}

func (c oneInformer) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer, nil
}

// oneByOne notes each handler that is added, which has been told all once its channel is closed.
type oneByOne struct {
	cache.Informer
	synced bool
	err    error
	added  chan *telling
}

func (i *oneByOne) HasSynced() bool { return i.synced }

func (i *oneByOne) AddEventHandlerWithOptions(toolscache.ResourceEventHandler, toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	if i.err != nil {
		return nil, i.err
	}
	t := &telling{synced: make(chan struct{})}
	i.added <- t
	return t, nil
}

type telling struct{ synced chan struct{} }

func (t *telling) HasSynced() bool                          { return false }
func (t *telling) HasSyncedChecker() toolscache.DoneChecker { return t }
func (t *telling) Name() string                             { return "test" }
func (t *telling) Done() <-chan struct{}                    { return t.synced }

func TestOneNewHandlerIsToldAfterTheOther(t *testing.T) {
	handlers := &oneByOne{synced: true, added: make(chan *telling, 8)}
	informer, err := newInTurn(oneInformer{informer: handlers}).GetInformer(t.Context(), &v1alpha1.Server{})
	if err != nil {
		t.Fatal(err)
	}
	var adding sync.WaitGroup
	for range 3 {
		adding.Go(func() {
			if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 3 {
		one := <-handlers.added
		select {
		case <-handlers.added:
			t.Fatal("a handler is added before the one before it was told what is there")
		case <-time.After(20 * time.Millisecond):
		}
		close(one.synced)
	}
	adding.Wait()
	// One that can't be added keeps nobody waiting.
	handlers.err = errors.New("it was stopped")
	for range 3 {
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); !errors.Is(err, handlers.err) {
			t.Errorf("got %v, want %v", err, handlers.err)
		}
	}
}

func TestHandlersOfACacheThatHasNothingYetAreAddedAtOnce(t *testing.T) {
	handlers := &oneByOne{added: make(chan *telling, 8)}
	informer, err := newInTurn(oneInformer{informer: handlers}).GetInformer(t.Context(), &v1alpha1.Server{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := informer.AddEventHandlerWithResyncPeriod(toolscache.ResourceEventHandlerFuncs{}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
}
