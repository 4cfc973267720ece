// Package serverbuilder decides what the Servers of a Fleet are made of, and what their names are. It is
// a function of the Fleet; a random name is the one exception.
package serverbuilder

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// schedulingWeight is the most that a preference can weigh.
const schedulingWeight = 100

// Build builds a Server as a Fleet makes it, with its place where it has one; else place is places.None.
// Hash is that of the Fleet's template.
func Build(f *v1alpha1.Fleet, hash, name string, place int32) *v1alpha1.Server {
	t := f.Spec.Template.DeepCopy()
	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   f.Namespace,
			Name:        name,
			Labels:      t.Metadata.Labels,
			Annotations: t.Metadata.Annotations,
			// Present from the start, so that there is no moment without the guard.
			Finalizers:      []string{wellknown.DeletionGuardFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, v1alpha1.GroupVersion.WithKind("Fleet"))},
		},
		Spec: t.Spec,
	}
	metav1.SetMetaDataLabel(&s.ObjectMeta, wellknown.FleetLabel, f.Name)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, wellknown.TemplateHashAnnotation, hash)
	if place != places.None {
		s.Labels[wellknown.PlaceLabel] = strconv.Itoa(int(place))
	}
	// A template that drains would be replaced for ever.
	s.Spec.Drain = false
	metav1.SetMetaDataLabel(&s.Spec.Template.ObjectMeta, wellknown.FleetLabel, f.Name)

	// The Fleet's preference for nodes, unless the template has one of its own.
	pod := &s.Spec.Template.Spec
	if len(pod.TopologySpreadConstraints) > 0 || pod.Affinity != nil && (pod.Affinity.PodAffinity != nil || pod.Affinity.PodAntiAffinity != nil) {
		return s
	}
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	near := []corev1.WeightedPodAffinityTerm{{
		Weight: schedulingWeight,
		PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wellknown.FleetLabel: f.Name}},
		},
	}}
	if f.Spec.Scheduling == v1alpha1.SchedulingDistributed {
		pod.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: near}
	} else {
		pod.Affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: near}
	}
	return s
}

// Like reports whether a Server is like one that would be created from the template now.
// Labels and annotations that somebody added to it don't count.
func Like(is, desired *v1alpha1.Server) bool {
	spec := templatehash.RevisionSpec(is.Spec)
	spec.Drain = desired.Spec.Drain
	want := templatehash.RevisionSpec(desired.Spec)
	annotations := maps.Clone(desired.Annotations)
	delete(annotations, wellknown.TemplateHashAnnotation)
	return contains(is.Labels, desired.Labels) && contains(is.Annotations, annotations) && equality.Semantic.DeepEqual(&spec, &want)
}

// contains reports whether all of some labels or annotations are among others.
func contains(all, some map[string]string) bool {
	for key, value := range some {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}
