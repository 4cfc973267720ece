// Package scheduling decides which nodes the Pods of a Fleet prefer: those with Pods of the Fleet, or those
// without. A template with a preference of its own is left alone.
//
// A Server of a Fleet with scheduling: Distributed has the preference in its template. One of a Fleet with
// scheduling: Packed has none there, and its Pod gets it: that was a fifteenth of each Server.
// Earlier versions wrote both into the Servers.
package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/wellknown"
)

// weight is the most that a preference can weigh.
const weight = 100

// Pack has a Pod prefer nodes that have Pods of the Fleet, unless it has a preference of its own.
func Pack(pod *corev1.PodSpec, fleet string) {
	if affinity := unset(pod); affinity != nil {
		affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: near(fleet)}
	}
}

// Distribute has a Pod prefer nodes that have no Pods of the Fleet, unless it has a preference of its own.
func Distribute(pod *corev1.PodSpec, fleet string) {
	if affinity := unset(pod); affinity != nil {
		affinity.PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: near(fleet)}
	}
}

// Unpacked is a Pod without what Pack did to it. The Pod itself stays as it is.
func Unpacked(pod corev1.PodSpec, fleet string) corev1.PodSpec {
	if pod.Affinity == nil {
		return pod
	}
	affinity := *pod.Affinity
	if equality.Semantic.DeepEqual(affinity.PodAffinity, &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: near(fleet)}) {
		affinity.PodAffinity = nil
	}
	pod.Affinity = &affinity
	if affinity == (corev1.Affinity{}) {
		pod.Affinity = nil
	}
	return pod
}

// unset is the affinity of a Pod, in which a preference is to be set; nil: it says itself how it spreads over
// nodes.
func unset(pod *corev1.PodSpec) *corev1.Affinity {
	switch {
	case len(pod.TopologySpreadConstraints) > 0, pod.Affinity != nil && (pod.Affinity.PodAffinity != nil || pod.Affinity.PodAntiAffinity != nil):
		return nil
	case pod.Affinity == nil:
		pod.Affinity = &corev1.Affinity{}
	}
	return pod.Affinity
}

// near are the nodes that have Pods of a Fleet.
func near(fleet string) []corev1.WeightedPodAffinityTerm {
	return []corev1.WeightedPodAffinityTerm{{
		Weight: weight,
		PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wellknown.FleetLabel: fleet}},
		},
	}}
}
