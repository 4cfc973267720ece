package gameserver

import (
	"math"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// guardName is the name of the PodDisruptionBudget in each namespace that has
// Servers.
const guardName = "dormouse-deletion-guard"

// ManagedByLabel and its value v1alpha1.ManagedBy are on what the controller
// keeps beside the Servers, so that it caches nobody else's.
const ManagedByLabel = "app.kubernetes.io/managed-by"

// buildGuard keeps Pods whose deletion isn't allowed from being evicted. The
// number is one that no namespace reaches: a percentage, or maxUnavailable, would
// make Kubernetes look for a scale that a Server hasn't got.
func buildGuard(namespace string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: guardName,
			Labels: map[string]string{ManagedByLabel: v1alpha1.ManagedBy},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:               new(intstr.FromInt32(math.MaxInt32)),
			Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.DeletionAllowedLabel: "false"}},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.IfHealthyBudget),
		},
	}
}
