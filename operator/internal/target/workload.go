package target

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Workload is what a target's spec says of its pods.
type Workload struct {
	// Replicas are how many it wants, and Selector finds them; empty: it has none, yet.
	Replicas int32
	Selector string
	// Readiness is what tells that they are up; empty: Scaler.Readiness tells.
	Readiness v1alpha1.PodReadiness
}

// Look is how a target is read.
type Look struct {
	// NotOlder is a resourceVersion as of which the answer may be, which costs the API server less;
	// empty: it is as of the call.
	NotOlder string
	// Scale is set where the answer is to be that of the target's scale.
	Scale bool
}

// See reads what a target's spec says, in one call. Deployments and StatefulSets are read themselves.
// Of other kinds it isn't known where they have their replicas, so that their scale is read as of the
// call; so it is of those two where the operator may not read them.
func (s *Scaler) See(ctx context.Context, ref Ref, how Look) (Workload, error) {
	if workloads[ref.APIVersion+"/"+ref.Kind] && !how.Scale {
		u, err := s.read(ctx, ref, how.NotOlder)
		if err == nil {
			return workloadOf(ref, u)
		}
		if !apierrors.IsForbidden(err) {
			return Workload{}, explain(ref, "read", err)
		}
	}
	scale, err := s.Get(ctx, ref)
	if err != nil {
		return Workload{}, err
	}
	return Workload{Replicas: scale.Spec.Replicas, Selector: scale.Status.Selector}, nil
}

// workloads are the kinds of which it is known where they have their replicas, their selector and their
// pods' template.
var workloads = map[string]bool{"apps/v1/Deployment": true, "apps/v1/StatefulSet": true}

// notOlderTime bounds a read as of a resourceVersion that the API server hasn't seen: it waits for that for
// three seconds, and then has its client try again for half a minute.
const notOlderTime = 500 * time.Millisecond

// read reads an object itself, as of a resourceVersion or a later one; empty: as of the call.
func (s *Scaler) read(ctx context.Context, ref Ref, notOlder string) (*unstructured.Unstructured, error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind}}
	if notOlder != "" {
		bounded, cancel := context.WithTimeout(ctx, notOlderTime)
		defer cancel()
		err := s.client.Get(bounded, key, u, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: notOlder}})
		// Another API server may have shown it to the watch.
		if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) && (err == nil || bounded.Err() == nil) {
			return u, err
		}
	}
	return u, s.client.Get(ctx, key, u)
}

// workloadOf is what a Deployment or a StatefulSet says.
func workloadOf(ref Ref, u *unstructured.Unstructured) (Workload, error) {
	replicas, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if !found && err == nil {
		replicas = 1 // as the API server has it
	}
	selector := &metav1.LabelSelector{}
	if m, _, nested := unstructured.NestedMap(u.Object, "spec", "selector"); nested != nil {
		err = nested
	} else if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(m, selector)
	}
	if err != nil {
		return Workload{}, fmt.Errorf("decode %s: %w", ref, err)
	}
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return Workload{}, fmt.Errorf("decode the selector of %s: %w", ref, err)
	}
	return Workload{Replicas: int32(replicas), Selector: matches.String(), Readiness: readinessOf(u)}, nil
}

// readinessOf is what tells that an object's pods are up: their readiness probe, if its pod template has one
// where the well-known kinds have it.
func readinessOf(u *unstructured.Unstructured) v1alpha1.PodReadiness {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		if m, ok := c.(map[string]any); ok && m["readinessProbe"] != nil {
			return v1alpha1.PodReadinessProbe
		}
	}
	return v1alpha1.PodReadinessConnect
}
