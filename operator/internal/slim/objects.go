package slim

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// kin is what Servers of a Fleet have in common of their metadata.
type kin struct {
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
	finalizers          []string
}

var (
	kins       Pool[kin]
	servers    Pool[v1alpha1.ServerSpec]
	services   Pool[v1alpha1.ElasticServiceSpec]
	endpoints  Pool[[]discoveryv1.Endpoint]
	containers Pool[[]corev1.Container]
	notes      Pool[map[string]string]
	lists      Pool[[]string]
	texts      Pool[string]
)

// maxShared bounds what is compared, in bytes: a user's annotations may have megabytes.
const maxShared = 4 << 10

// Server makes a Server small: those of a Fleet have one spec and one metadata, but for their names.
func Server(o any) (any, error) {
	s, ok := o.(*v1alpha1.Server)
	if !ok {
		return o, nil
	}
	metadata(&s.ObjectMeta)
	s.Status.Conditions = conditions(s.Status.Conditions)
	statusOf(&s.Status)
	by := metav1.GetControllerOfNoCopy(s)
	if by == nil {
		return s, nil
	}
	if sizeOf(s.Annotations) > maxShared {
		return s, nil
	}
	key := string(by.UID) + s.Annotations[wellknown.TemplateHashAnnotation]
	k := kins.One(key, kin{s.Labels, s.Annotations, s.OwnerReferences, s.Finalizers})
	s.Labels, s.Annotations, s.OwnerReferences, s.Finalizers = k.labels, k.annotations, k.owners, k.finalizers
	drain := s.Spec.Drain
	s.Spec.Drain = false
	s.Spec = servers.One(key, s.Spec)
	s.Spec.Drain = drain
	return s, nil
}

func statusOf(s *v1alpha1.ServerStatus) {
	s.NodeName, s.State = String(s.NodeName), v1alpha1.ServerState(String(string(s.State)))
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Name, p.Protocol = String(p.Name), v1alpha1.ServerProtocol(String(string(p.Protocol)))
	}
	for i := range s.Addresses {
		a := &s.Addresses[i]
		a.Type = corev1.NodeAddressType(String(string(a.Type)))
		if a.Address == s.PodIP {
			a.Address = s.PodIP
		}
	}
	if s.Address == s.PodIP {
		s.Address = s.PodIP
	}
}

// ElasticService makes an ElasticService small: many of a namespace differ in no more than what they
// name.
func ElasticService(o any) (any, error) {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok {
		return o, nil
	}
	metadata(&es.ObjectMeta)
	es.Finalizers = finalizers(es.Finalizers)
	es.Status.Conditions = conditions(es.Status.Conditions)
	service, ref := es.Spec.Service, es.Spec.ScaleTargetRef
	ref.APIVersion, ref.Kind = String(ref.APIVersion), String(ref.Kind)
	if ref.Name == service {
		ref.Name = service
	}
	es.Spec.Service, es.Spec.ScaleTargetRef = "", v1alpha1.ScaleTargetRef{}
	es.Spec = services.One(es.Namespace, es.Spec)
	es.Spec.Service, es.Spec.ScaleTargetRef = service, ref
	return es, nil
}

// EndpointSlice makes an EndpointSlice small: the resolvers are the endpoints of all that sleep. Nobody
// reads its annotations: Kubernetes notes in one when it last changed.
func EndpointSlice(o any) (any, error) {
	slice, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return o, nil
	}
	metadata(&slice.ObjectMeta)
	slice.Annotations = nil
	if len(slice.Endpoints) > 0 && len(slice.Endpoints[0].Addresses) > 0 {
		slice.Endpoints = endpoints.One(slice.Endpoints[0].Addresses[0], slice.Endpoints)
	}
	return slice, nil
}

// Containers are a Pod's containers, and Annotations its annotations: Pods of a Fleet have one.
func Containers(of string, c []corev1.Container) []corev1.Container {
	if len(c) == 0 {
		return nil
	}
	return containers.One(of+"/"+c[0].Name, c)
}

// Pod makes the metadata and the conditions of a Pod small.
func Pod(pod *corev1.Pod) {
	metadata(&pod.ObjectMeta)
	pod.Annotations = annotations(pod.Annotations)
	pod.Status.Phase = corev1.PodPhase(String(string(pod.Status.Phase)))
	pod.Spec.NodeName = String(pod.Spec.NodeName)
	for i := range pod.Status.PodIPs {
		if pod.Status.PodIPs[i].IP == pod.Status.PodIP {
			pod.Status.PodIPs[i].IP = pod.Status.PodIP
		}
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		c.Type, c.Status, c.Reason = corev1.PodConditionType(String(string(c.Type))), corev1.ConditionStatus(String(string(c.Status))), String(c.Reason)
	}
}

// Service makes the metadata of a Service small, and its words.
func Service(s *corev1.Service) {
	metadata(&s.ObjectMeta)
	spec := &s.Spec
	spec.Type, spec.SessionAffinity = corev1.ServiceType(String(string(spec.Type))), corev1.ServiceAffinity(String(string(spec.SessionAffinity)))
	for i := range spec.Ports {
		p := &spec.Ports[i]
		p.Name, p.Protocol = String(p.Name), corev1.Protocol(String(string(p.Protocol)))
	}
	for i := range spec.IPFamilies {
		spec.IPFamilies[i] = corev1.IPFamily(String(string(spec.IPFamilies[i])))
	}
	for i := range spec.ClusterIPs {
		if spec.ClusterIPs[i] == spec.ClusterIP {
			spec.ClusterIPs[i] = spec.ClusterIP
		}
	}
	spec.Selector = labels(s.Name, spec.Selector)
}
