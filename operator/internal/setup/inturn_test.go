package setup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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
	synctest.Test(t, func(t *testing.T) {
		handlers := &oneByOne{synced: true, added: make(chan *telling, 8)}
		informer, err := newInTurn(oneInformer{informer: handlers}).GetInformer(t.Context(), &v1alpha1.Server{})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			go func() {
				if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err != nil {
					t.Error(err)
				}
			}()
		}
		for range 3 {
			one := <-handlers.added
			synctest.Wait()
			if len(handlers.added) > 0 {
				t.Fatal("a handler is added before the one before it was told what is there")
			}
			close(one.synced)
		}
		// One that never has all keeps the others waiting for a while, and one that can't be added doesn't.
		<-handlers.added
		handlers.err = errors.New("it was stopped")
		began := time.Now()
		for range 3 {
			if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); !errors.Is(err, handlers.err) {
				t.Errorf("got %v, want %v", err, handlers.err)
			}
		}
		if waited := time.Since(began); waited != turnTime {
			t.Errorf("the others waited for %s, want %s", waited, turnTime)
		}
	})
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
