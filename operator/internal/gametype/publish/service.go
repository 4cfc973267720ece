package publish

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Service changes a Service, new or existing, to what the GameType asks for, and leaves
// the rest as it is. What the GameType once asked for goes when it doesn't any more. Ports are the
// GameType's, and old are those of earlier revisions' Servers.
func Service(gt *v1alpha1.GameType, ports []corev1.ServicePort, s *corev1.Service, old []OldPort) {
	asked := &gt.Spec.Service
	before, now := map[string]bool{}, map[string]bool{
		"loadBalancerSourceRanges": len(asked.LoadBalancerSourceRanges) > 0,
		"externalTrafficPolicy":    asked.ExternalTrafficPolicy != "",
		"sessionAffinity":          asked.SessionAffinity != "",
	}
	for name := range strings.SplitSeq(s.Annotations[wellknown.ServiceSettingsAnnotation], ",") {
		before[name] = true
	}

	labels := make(map[string]string, len(s.Labels)+1)
	maps.Copy(labels, s.Labels)
	for name := range before {
		if label, ok := strings.CutPrefix(name, labelSetting); ok {
			delete(labels, label)
		}
	}
	maps.Copy(labels, asked.Labels)
	labels[wellknown.GameTypeLabel] = gt.Name
	for name := range asked.Labels {
		now[labelSetting+name] = true
	}
	s.Labels = labels

	annotations := map[string]string{}
	maps.Copy(annotations, s.Annotations)
	for name := range strings.SplitSeq(s.Annotations[wellknown.ServiceAnnotationsAnnotation], ",") {
		delete(annotations, name)
	}
	maps.Copy(annotations, asked.Annotations)
	delete(annotations, wellknown.ServiceAnnotationsAnnotation)
	if names := slices.Sorted(maps.Keys(asked.Annotations)); len(names) > 0 {
		annotations[wellknown.ServiceAnnotationsAnnotation] = strings.Join(names, ",")
	}

	s.Spec.Type = corev1.ServiceType(asked.Type)
	s.Spec.Selector = nil
	if policy := asked.IPFamilyPolicy; policy != nil {
		s.Spec.IPFamilyPolicy = policy
	}
	if asked.LoadBalancerClass != nil {
		s.Spec.LoadBalancerClass = asked.LoadBalancerClass
	}
	if now["loadBalancerSourceRanges"] || before["loadBalancerSourceRanges"] {
		s.Spec.LoadBalancerSourceRanges = asked.LoadBalancerSourceRanges
	}
	if now["externalTrafficPolicy"] || before["externalTrafficPolicy"] {
		s.Spec.ExternalTrafficPolicy = asked.ExternalTrafficPolicy
	}
	if now["sessionAffinity"] || before["sessionAffinity"] {
		s.Spec.SessionAffinity = asked.SessionAffinity
		if s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
			s.Spec.SessionAffinityConfig = nil
		}
	}
	s.Spec.Ports = PlanPorts(gt, ports, s.Spec.Type, s.Spec.Ports, old)

	delete(annotations, wellknown.ServiceSettingsAnnotation)
	maps.DeleteFunc(now, func(_ string, isAsked bool) bool { return !isAsked })
	if names := slices.Sorted(maps.Keys(now)); len(names) > 0 {
		annotations[wellknown.ServiceSettingsAnnotation] = strings.Join(names, ",")
	}
	if len(annotations) > 0 || len(s.Annotations) > 0 {
		s.Annotations = annotations
	}
}

// labelSetting is put before a label's name in ServiceSettingsAnnotation.
const labelSetting = "labels/"

// Address is where a GameType's players come to.
func Address(gt *v1alpha1.GameType, s *corev1.Service) string {
	switch {
	case gt.Spec.Front != nil && len(gt.Spec.Front.Hosts) > 0:
		return string(gt.Spec.Front.Hosts[0])
	case s.Spec.Type == corev1.ServiceTypeLoadBalancer:
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return ""
		}
		at := s.Status.LoadBalancer.Ingress[0]
		return cmp.Or(at.Hostname, at.IP)
	default:
		return s.Name + "." + s.Namespace + ".svc"
	}
}
