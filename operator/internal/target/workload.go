package target

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Workload is what a target's spec says of its pods.
type Workload struct {
	// Replicas are how many it wants, and Selector finds them; empty: it has none, yet.
	Replicas int32
	// LosesDisks reports whether Kubernetes deletes its pods' disks once it is scaled to zero, as far as
	// that was read.
	LosesDisks bool
	Selector   string
	// Readiness is what tells that they are up; empty: Scaler.Template tells, and whether it loses disks.
	Readiness v1alpha1.PodReadiness
}

// See reads what a target's spec says, in one call. Deployments and StatefulSets are read themselves, unless
// the answer is to be that of their scale. Of other kinds it isn't known where they have their replicas, so
// that their scale is read; so it is of those two where the operator may not read them.
func (s *Scaler) See(ctx context.Context, ref Ref, byScale bool) (Workload, error) {
	if o := emptyWorkload(ref); o != nil && !byScale {
		err := s.live.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, o)
		if err == nil {
			return workloadOf(ref, o)
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

// emptyWorkload is an object of a target's kind, where it is known where that has its replicas, its selector and its
// pods' template; nil where it isn't. Of a type of Go's it is decoded in a fraction of the time.
func emptyWorkload(ref Ref) client.Object {
	switch ref.APIVersion + "/" + ref.Kind {
	case "apps/v1/Deployment":
		return &appsv1.Deployment{}
	case "apps/v1/StatefulSet":
		return &appsv1.StatefulSet{}
	}
	return nil
}

// read reads an object itself, of any kind.
func (s *Scaler) read(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind}}
	return u, s.client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, u)
}

// workloadOf is what a Deployment or a StatefulSet says.
func workloadOf(ref Ref, o client.Object) (Workload, error) {
	var replicas *int32
	var selector *metav1.LabelSelector
	var template *corev1.PodTemplateSpec
	losesDisks := false
	switch o := o.(type) {
	case *appsv1.Deployment:
		replicas, selector, template = o.Spec.Replicas, o.Spec.Selector, &o.Spec.Template
	case *appsv1.StatefulSet:
		replicas, selector, template = o.Spec.Replicas, o.Spec.Selector, &o.Spec.Template
		losesDisks = LosesDisks(len(o.Spec.VolumeClaimTemplates), o.Spec.PersistentVolumeClaimRetentionPolicy)
	default:
		return Workload{}, fmt.Errorf("decode %s: it is a %T", ref, o)
	}
	probed := slices.ContainsFunc(template.Spec.Containers, func(c corev1.Container) bool { return c.ReadinessProbe != nil })
	w, err := Says(replicas, selector, probed)
	if err != nil {
		return Workload{}, fmt.Errorf("decode the selector of %s: %w", ref, err)
	}
	w.LosesDisks = losesDisks
	return w, nil
}

// Says is what the spec of a Deployment or a StatefulSet says: its replicas, its selector, and whether a container
// of its pods has a readiness probe.
func Says(replicas *int32, selector *metav1.LabelSelector, probed bool) (Workload, error) {
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return Workload{}, err //nolint:wrapcheck // the caller says whose it is
	}
	w := Workload{Replicas: ptr.Deref(replicas, 1), Selector: matches.String(), Readiness: v1alpha1.PodReadinessConnect}
	if probed {
		w.Readiness = v1alpha1.PodReadinessProbe
	}
	return w, nil
}

// LosesDisks reports whether a StatefulSet with so many claims for each pod loses its disks at zero.
func LosesDisks(claims int, policy *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy) bool {
	return claims > 0 && policy != nil && policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// losesDisksOf is LosesDisks of an object whose spec is like a StatefulSet's.
func losesDisksOf(u *unstructured.Unstructured) bool {
	claims, _, _ := unstructured.NestedSlice(u.Object, "spec", "volumeClaimTemplates")
	when, _, _ := unstructured.NestedString(u.Object, "spec", "persistentVolumeClaimRetentionPolicy", "whenScaled")
	policy := appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.PersistentVolumeClaimRetentionPolicyType(when)}
	return LosesDisks(len(claims), &policy)
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
