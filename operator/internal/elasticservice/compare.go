package elasticservice

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// samePrivateService says that what we set in the private Service is so.
func samePrivateService(have, want *corev1.Service) bool {
	if len(have.Spec.Ports) != len(want.Spec.Ports) {
		return false
	}
	for i := range want.Spec.Ports {
		h, w := have.Spec.Ports[i], want.Spec.Ports[i]
		if w.TargetPort.String() == "0" {
			w.TargetPort = h.TargetPort
		}
		if !equality.Semantic.DeepEqual(h, w) {
			return false
		}
	}
	return have.Spec.PublishNotReadyAddresses == want.Spec.PublishNotReadyAddresses &&
		equality.Semantic.DeepEqual(have.Spec.Selector, want.Spec.Selector) &&
		equality.Semantic.DeepEqual(have.Spec.IPFamilies, want.Spec.IPFamilies) &&
		have.Labels[v1alpha1.PrivateServiceLabel] == want.Labels[v1alpha1.PrivateServiceLabel]
}

// sameSlice says that a slice has the endpoints and ports that are wanted.
func sameSlice(have, want *discoveryv1.EndpointSlice) bool {
	return equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) &&
		equality.Semantic.DeepEqual(have.Ports, want.Ports) &&
		have.Labels[discoveryv1.LabelServiceName] == want.Labels[discoveryv1.LabelServiceName]
}

// isServerSlice tells a slice of servers from one of resolvers.
func isServerSlice(s *discoveryv1.EndpointSlice) bool {
	return strings.HasPrefix(s.Name, serverSliceName(s.Labels[discoveryv1.LabelServiceName], ""))
}

func sortByAge(items []v1alpha1.ElasticService) {
	slices.SortFunc(items, func(a, b v1alpha1.ElasticService) int {
		if olderThan(&a, &b) {
			return -1
		}
		return 1
	})
}
