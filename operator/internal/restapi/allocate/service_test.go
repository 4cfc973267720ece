package allocate

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// apiServer makes what it was asked to a while later, whether or not somebody still waits for that, as the real
// one does with a call that it has begun.
type apiServer struct {
	client.WithWatch

	// fails has it answer that it doesn't know, at once.
	fails error
	begun chan struct{}
	made  sync.WaitGroup
}

func (a *apiServer) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	done := make(chan error, 1)
	a.made.Add(1)
	time.AfterFunc(300*time.Millisecond, func() {
		defer a.made.Done()
		done <- a.WithWatch.Create(context.WithoutCancel(ctx), o.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // a copy is of its kind
	})
	close(a.begun)
	if a.fails != nil {
		return a.fails
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A matchmaker hangs up while the API server has much to do: no place is given that nobody lets go.
func TestNothingIsLeftOfACallThatEndsBeforeItsAllocationIsMade(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, fails := range map[string]error{
		"the caller hangs up":                nil,
		"the API server's answer never came": errors.New("http2: client connection lost"),
		"the API server ran out of time":     apierrors.NewTimeoutError("the request did not complete within 20s", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &apiServer{
				WithWatch: fake.NewClientBuilder().WithScheme(scheme).Build(),
				fails:     fails, begun: make(chan struct{}),
			}
			s := &Service{client: a, live: a, now: time.Now, waiters: &waiters{all: map[types.NamespacedName]map[*waiter]struct{}{}}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				<-a.begun
				cancel()
			}()
			if _, err := s.Allocate(ctx, "games", Request{Session: "match-1", Target: "duel"}); err == nil {
				t.Error("who hung up was given something")
			}
			a.made.Wait()
			var left v1alpha1.AllocationList
			if err := a.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
				t.Errorf("%d Allocations are left (%v)", len(left.Items), err)
			}
		})
	}
}
