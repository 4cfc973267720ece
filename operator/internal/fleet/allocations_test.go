package fleet

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
)

// holders are the Servers that Allocations have.
type holders map[string]bool

func (h holders) WaitSynced(context.Context) error { return nil }
func (h holders) HolderOf(_, name string, _ types.UID) book.Holder {
	if h[name] {
		return book.Holder{Name: "match"}
	}
	return book.Holder{}
}
func (h holders) Withdraw(_, name string) bool { return !h[name] }

func TestAServerThatAnAllocationHasIsSpared(t *testing.T) {
	r := &Reconciler{Allocations: holders{"a": true, "b": true, "c": true}}
	servers := []server{has("a", 0), has("b", 0, broken), has("c", 0, ended), has("d", 0)}
	r.observeHolders(&v1alpha1.Fleet{}, servers)
	p := makePlan(t0, &v1alpha1.FleetSpec{Replicas: new(int32(0))}, servers, backoff{})
	got := decide(p)
	if len(got.Remove) != 3 || len(got.Drain) != 0 || got.Spared != 1 {
		t.Errorf("the plan is %+v, want only a to stay", got)
	}
	for _, name := range got.Remove {
		if name == "a" {
			t.Error("a goes, which an Allocation has")
		}
	}
}

func TestAServerThatAnAllocationGotMeanwhileDoesNotGo(t *testing.T) {
	r := &Reconciler{Allocations: holders{"a": true}}
	f, a := &v1alpha1.Fleet{}, has("a", 0)
	if err := r.remove(t.Context(), f, nil, &a); !apierrors.IsConflict(err) {
		t.Errorf("it is deleted: %v", err)
	}
	if err := r.setDrain(t.Context(), f, nil, &a, true); !apierrors.IsConflict(err) {
		t.Errorf("it is drained: %v", err)
	}
}
