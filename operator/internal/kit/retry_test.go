package kit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A write that met another one is no error: it would be logged with a stack.
func TestAConflictIsNoError(t *testing.T) {
	conflict := fmt.Errorf("write the status: %w", apierrors.NewConflict(schema.GroupResource{Resource: "elasticservices"}, "lobby", errors.New("changed")))
	if result, err := DefaultRetries.Result(reconcile.Result{}, conflict); err != nil || result.RequeueAfter <= 0 {
		t.Errorf("a conflict gives %v, again in %s; want no error, and soon", err, result.RequeueAfter)
	}
	other := errors.New("the API server says nothing")
	if _, err := DefaultRetries.Result(reconcile.Result{}, other); !errors.Is(err, other) {
		t.Errorf("another error gives %v", err)
	}
}

// A thousand objects of one tenant that fail again and again delay nobody else, and each of them is soon tried again
// once the fault is over.
func TestAFailureDelaysItsObjectAlone(t *testing.T) {
	l := Limiter()
	for n := range 1000 {
		key := types.NamespacedName{Namespace: "full", Name: fmt.Sprint("lobby-", n)}
		for range 20 {
			if after := l.When(reconcile.Request{NamespacedName: key}); after > 30*time.Second {
				t.Fatalf("%s waits for %s", key, after)
			}
		}
	}
	if after := l.When(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "games", Name: "lobby"}}); after > 10*time.Millisecond {
		t.Errorf("after another tenant's failures it waits for %s", after)
	}
}
