package endpoints

import (
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/obstacle"
)

const privateSuffix = "-dormouse"

// PrivateServiceName is the name of the headless Service beside a user's, within
// the 63 characters that a Service's name may have.
func PrivateServiceName(service string) string {
	const suffix = privateSuffix
	if len(service)+len(suffix) <= 63 {
		return service + suffix
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(service))
	return fmt.Sprintf("%s-%08x%s", service[:63-len(suffix)-9], h.Sum32(), suffix)
}

// PublicServiceName is the name of the Service beside which a private one of a name is, unless that name
// had to be made shorter; empty: no private Service has that name.
func PublicServiceName(private string) string {
	name, ok := strings.CutSuffix(private, privateSuffix)
	if !ok {
		return ""
	}
	return name
}

// childMeta is the metadata of what is made for an ElasticService.
func childMeta(es *v1alpha1.ElasticService, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: es.Namespace,
		Labels: map[string]string{
			wellknown.PrivateServiceLabel:  es.Spec.Service,
			"app.kubernetes.io/managed-by": "dormouse",
		},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(es, v1alpha1.GroupVersion.WithKind("ElasticService"))},
	}
}

// PodSelector is the selector of the target's pods: the Service's, or else the one in the
// target's scale, as far as a Service can express it.
func PodSelector(svc *corev1.Service, scaleSelector string) (map[string]string, *obstacle.Obstacle) {
	if len(svc.Spec.Selector) > 0 {
		return svc.Spec.Selector, nil
	}
	set, err := labels.ConvertSelectorToLabelsMap(scaleSelector)
	if err != nil || len(set) == 0 {
		return nil, obstacle.New(reasons.NoTargetSelector,
			"Service %s has no selector, and the target's scale has none of the form key=value either (it says %q), so its pods can't be found: give the Service a selector.",
			svc.Name, scaleSelector)
	}
	return set, nil
}

// PrivateService is the headless Service of this name through which Kubernetes publishes the
// addresses of the target's pods as soon as they have one. It has the ports of the user's Service,
// and nothing that would open it to the outside.
func PrivateService(es *v1alpha1.ElasticService, name string, svc *corev1.Service, selector map[string]string) *corev1.Service {
	private := &corev1.Service{
		ObjectMeta: childMeta(es, name),
		Spec: corev1.ServiceSpec{
			Type:                     corev1.ServiceTypeClusterIP,
			ClusterIP:                corev1.ClusterIPNone,
			Selector:                 selector,
			PublishNotReadyAddresses: true,
			IPFamilies:               svc.Spec.IPFamilies,
			IPFamilyPolicy:           svc.Spec.IPFamilyPolicy,
		},
	}
	for _, p := range svc.Spec.Ports {
		private.Spec.Ports = append(private.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: p.Protocol, Port: p.Port, TargetPort: p.TargetPort, AppProtocol: p.AppProtocol,
		})
	}
	return private
}

// SamePrivateService reports whether the fields that Dormouse sets in the private Service are
// as wanted.
func SamePrivateService(have, want *corev1.Service) bool {
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
		have.Labels[wellknown.PrivateServiceLabel] == want.Labels[wellknown.PrivateServiceLabel]
}
