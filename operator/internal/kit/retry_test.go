package kit

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
