package fleet

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// suffixLength is how many characters a Server's name has beyond its Fleet's.
const suffixLength = 5

// schedulingWeight is the most that a preference can weigh.
const schedulingWeight = 100

// newName is a name for a Server. With Kubernetes' generateName the name would be known only
// from the answer.
func newName(f *v1alpha1.Fleet) string { return f.Name + "-" + rand.String(suffixLength) }

// desiredServer is a Server as a Fleet makes it.
func desiredServer(f *v1alpha1.Fleet, name string) *v1alpha1.Server {
	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   f.Namespace,
			Name:        name,
			Labels:      with(f.Spec.Template.Metadata.Labels, v1alpha1.FleetLabel, f.Name),
			Annotations: with(f.Spec.Template.Metadata.Annotations, v1alpha1.TemplateHashAnnotation, templatehash.Of(f.Spec.Template)),
			// Present from the start, so that there is no moment without the guard.
			Finalizers:      []string{v1alpha1.DeletionGuardFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, v1alpha1.GroupVersion.WithKind("Fleet"))},
		},
		Spec: *f.Spec.Template.Spec.DeepCopy(),
	}
	// A template that drains would be replaced for ever.
	s.Spec.Drain = false
	pod := &s.Spec.Template
	pod.Labels = with(pod.Labels, v1alpha1.FleetLabel, f.Name)
	schedule(&pod.Spec, f)
	return s
}

// schedule adds the Fleet's preference, unless the template has one of its own.
func schedule(pod *corev1.PodSpec, f *v1alpha1.Fleet) {
	if len(pod.TopologySpreadConstraints) > 0 || pod.Affinity != nil && (pod.Affinity.PodAffinity != nil || pod.Affinity.PodAntiAffinity != nil) {
		return
	}
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	near := []corev1.WeightedPodAffinityTerm{{
		Weight: schedulingWeight,
		PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.FleetLabel: f.Name}},
		},
	}}
	if f.Spec.Scheduling == v1alpha1.SchedulingDistributed {
		pod.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: near}
	} else {
		pod.Affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: near}
	}
}

// selector selects a Fleet's Pods.
func selector(f *v1alpha1.Fleet) string { return v1alpha1.FleetLabel + "=" + f.Name }

// with is a copy of labels or annotations with one added.
func with(labels map[string]string, key, value string) map[string]string {
	more := make(map[string]string, len(labels)+1)
	maps.Copy(more, labels)
	more[key] = value
	return more
}
