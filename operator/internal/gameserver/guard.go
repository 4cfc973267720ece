package gameserver

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/patch"
)

// guardName is the name of the PodDisruptionBudget in each namespace that has
// Servers.
const guardName = "dormouse-deletion-guard"

// managedByLabel and its value wellknown.ManagedBy are on objects that the controller keeps
// beside the Servers, so that only those are cached.
const managedByLabel = "app.kubernetes.io/managed-by"

// guardSpec is what keeps Pods whose deletion isn't allowed from being evicted. Its number is one
// that no namespace reaches. For a percentage, or maxUnavailable, Kubernetes would read the scale of
// each Server in each pass; and it would allow evictions while one is scaled to 0 and has players left.
var guardSpec = policyv1.PodDisruptionBudgetSpec{
	MinAvailable:               new(intstr.FromInt32(math.MaxInt32)),
	Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{wellknown.DeletionAllowedLabel: "false"}},
	UnhealthyPodEvictionPolicy: ptr.To(policyv1.IfHealthyBudget),
}

// keepGuard brings the namespace's PodDisruptionBudget to the wanted state.
func (r *Reconciler) keepGuard(ctx context.Context, namespace string) error {
	have := &policyv1.PodDisruptionBudget{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: guardName}, have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the deletion guard of namespace %s: %w", namespace, err)
	}
	guards := err == nil && ptr.Equal(have.Spec.MinAvailable, guardSpec.MinAvailable) &&
		ptr.Equal(have.Spec.UnhealthyPodEvictionPolicy, guardSpec.UnhealthyPodEvictionPolicy) &&
		equality.Semantic.DeepEqual(have.Spec.Selector, guardSpec.Selector)
	if guards || r.made.Has(namespace, r.Now()) {
		return nil
	}
	desired := &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: guardName,
			Labels: map[string]string{managedByLabel: wellknown.ManagedBy},
		},
		Spec: *guardSpec.DeepCopy(),
	}
	// Many Servers of a new namespace get here at once.
	r.made.Add(namespace, r.Now())
	if err := patch.Apply(ctx, r.Client, fieldOwner, desired); err != nil {
		r.made.Forget(namespace)
		return err
	}
	return nil
}

// emptiedAfter is how long after a Server went its namespace is looked at: a Fleet's Servers go
// together, and each look costs as much as there are Servers.
const emptiedAfter = time.Second

// emptied notes for each namespace the Server after which it is to be looked at.
type emptied struct {
	mu    sync.Mutex
	after map[string]string
}

// look reports, for a Server that is gone, whether to look now, and else after how long; 0: another
// Server's pass does.
func (e *emptied) look(key types.NamespacedName) (now bool, after time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.after[key.Namespace] {
	case key.Name:
		delete(e.after, key.Namespace)
		return true, 0
	case "":
		if e.after == nil {
			e.after = map[string]string{}
		}
		e.after[key.Namespace] = key.Name
		return false, emptiedAfter
	default:
		return false, 0
	}
}
