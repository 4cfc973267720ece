package slim

import (
	"fmt"
	"hash/maphash"

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
	families   Pool[[]corev1.IPFamily]
	requests   Pool[*v1alpha1.AsleepRequests]
	// Those that were made at one time come in the order of their names after a restart.
	states  = Pool[[]metav1.Condition]{keeps: 2048}
	stages  = Pool[[]corev1.PodCondition]{keeps: 2048}
	running = Pool[[]corev1.ContainerStatus]{keeps: 2048}

	names           Pool[*string]
	protocols       Pool[*corev1.Protocol]
	trafficPolicies Pool[*corev1.ServiceInternalTrafficPolicy]
	familyPolicies  Pool[*corev1.IPFamilyPolicy]
)

// maxShared bounds what is compared, in bytes: a user's annotations may have megabytes.
const maxShared = 4 << 10

// Server makes a Server small: those of a Fleet have one spec and one metadata, but for their names.
func Server(o any) (any, error) {
	s, ok := o.(*v1alpha1.Server)
	if !ok {
		return o, nil
	}
	s.TypeMeta = kind(s.TypeMeta)
	metadata(&s.ObjectMeta)
	s.Status.Conditions = conditions(s.Status.Conditions)
	serverStatus(s.Name, &s.Status)
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

func serverStatus(name string, s *v1alpha1.ServerStatus) {
	s.PodName = within(name, s.PodName)
	s.NodeName, s.State = word(s.NodeName), word(s.State)
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Name, p.Protocol = word(p.Name), word(p.Protocol)
	}
	if s.Game != nil {
		s.Game.State, s.Game.Permission = word(s.Game.State), word(s.Game.Permission)
	}
	// An address is the Pod's own, or its node's, which all Servers there have.
	address := func(a string) string {
		if a == s.PodIP {
			return s.PodIP
		}
		return word(a)
	}
	for i := range s.Addresses {
		a := &s.Addresses[i]
		a.Type, a.Address = word(a.Type), address(a.Address)
	}
	s.Address = address(s.Address)
}

// ElasticService makes an ElasticService small: many of a namespace differ in no more than what they
// name.
func ElasticService(o any) (any, error) {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok {
		return o, nil
	}
	es.TypeMeta = kind(es.TypeMeta)
	metadata(&es.ObjectMeta)
	es.Finalizers = finalizers(es.Finalizers)
	es.Status.Conditions = conditions(es.Status.Conditions)
	service := within(es.Name, es.Spec.Service)
	ref := scaleTarget(es.Name, service, es.Spec.ScaleTargetRef)
	elasticStatus(es.Name, service, &es.Status)
	es.Spec.Service, es.Spec.ScaleTargetRef = "", v1alpha1.ScaleTargetRef{}
	es.Spec = services.One(es.Namespace, es.Spec)
	es.Spec.Service, es.Spec.ScaleTargetRef = service, ref
	return es, nil
}

// scaleTarget is what an ElasticService scales: mostly it has the name of either.
func scaleTarget(name, service string, ref v1alpha1.ScaleTargetRef) v1alpha1.ScaleTargetRef {
	ref.APIVersion, ref.Kind = word(ref.APIVersion), word(ref.Kind)
	ref.Name = within(service, within(name, ref.Name))
	return ref
}

func elasticStatus(name, service string, s *v1alpha1.ElasticServiceStatus) {
	s.Mode, s.Phase, s.Readiness = word(s.Mode), word(s.Phase), word(s.Readiness)
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Name, p.Protocol, p.Readiness = word(p.Name), word(p.Protocol), word(p.Readiness)
	}
	if r := s.AsleepRequests; r != nil {
		s.AsleepRequests = requests.One(fmt.Sprint(r.Replicas, r.CPU.MilliValue(), r.Memory.Value()), r)
	}
	if t := s.AsleepTarget; t != nil {
		t.ScaleTargetRef = scaleTarget(name, service, t.ScaleTargetRef)
	}
}

// EndpointSlice makes an EndpointSlice small: the resolvers are the endpoints of all that sleep. Nobody
// reads the annotations of Kubernetes' slices, which say when they last changed, nor who owns them. Dormouse's own are
// written as they are here.
func EndpointSlice(o any) (any, error) {
	slice, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return o, nil
	}
	metadata(&slice.ObjectMeta)
	slice.AddressType = word(slice.AddressType)
	by := slice.Labels[discoveryv1.LabelManagedBy]
	if by != wellknown.ManagedBy {
		slice.Annotations = nil
	}
	if by == wellknown.EndpointSliceController {
		slice.OwnerReferences = nil
	}
	for i := range slice.Ports {
		p := &slice.Ports[i]
		p.Name, p.Protocol = pointer(&names, p.Name), pointer(&protocols, p.Protocol)
	}
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

// Pod makes the metadata of a Pod small, its conditions and its containers' statuses.
func Pod(pod *corev1.Pod) {
	metadata(&pod.ObjectMeta)
	pod.Annotations = equal(pod.Annotations)
	pod.Status.Phase, pod.Spec.NodeName = word(pod.Status.Phase), word(pod.Spec.NodeName)
	for i := range pod.Status.PodIPs {
		if pod.Status.PodIPs[i].IP == pod.Status.PodIP {
			pod.Status.PodIPs[i].IP = pod.Status.PodIP
		}
	}
	pod.Status.Conditions = podConditions(pod.Status.Conditions)
	pod.Status.InitContainerStatuses = containerStatuses(pod.Status.InitContainerStatuses)
	pod.Status.ContainerStatuses = containerStatuses(pod.Status.ContainerStatuses)
}

// podConditions are equal ones of another Pod: Pods that began in the same seconds have equal ones.
func podConditions(list []corev1.PodCondition) []corev1.PodCondition {
	size := 0
	return sharedList(&stages, list, func(c *corev1.PodCondition, hash *maphash.Hash) bool {
		c.Type, c.Status, c.Reason = word(c.Type), word(c.Status), word(c.Reason)
		size += len(c.Message)
		maphash.WriteComparable(hash, condition{string(c.Type), c.Reason, c.Message, metav1.ConditionStatus(c.Status), c.ObservedGeneration, c.LastTransitionTime.Unix()})
		return size <= maxShared
	})
}

// containerStatuses are equal ones of another Pod, where each container runs for the first time.
func containerStatuses(list []corev1.ContainerStatus) []corev1.ContainerStatus {
	return sharedList(&running, list, func(s *corev1.ContainerStatus, hash *maphash.Hash) bool {
		s.Name, s.Started = word(s.Name), flag(s.Started)
		if s.State.Running == nil || s.RestartCount != 0 || s.LastTerminationState != (corev1.ContainerState{}) {
			return false
		}
		maphash.WriteComparable(hash, container{s.Name, s.Ready, s.Started, s.State.Running.StartedAt.Unix()})
		return true
	})
}

// container is what distinguishes a container that runs for the first time.
type container struct {
	name    string
	ready   bool
	started *bool
	at      int64
}

// Service makes the metadata of a Service small, and its words.
func Service(s *corev1.Service) {
	metadata(&s.ObjectMeta)
	s.Labels = equal(s.Labels) // mostly the selector
	spec := &s.Spec
	spec.Type, spec.SessionAffinity, spec.ExternalTrafficPolicy = word(spec.Type), word(spec.SessionAffinity), word(spec.ExternalTrafficPolicy)
	spec.InternalTrafficPolicy, spec.IPFamilyPolicy = pointer(&trafficPolicies, spec.InternalTrafficPolicy), pointer(&familyPolicies, spec.IPFamilyPolicy)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		p.Name, p.Protocol = word(p.Name), word(p.Protocol)
	}
	if len(spec.IPFamilies) > 0 {
		spec.IPFamilies = families.One(fmt.Sprint(spec.IPFamilies), spec.IPFamilies)
	}
	if spec.ClusterIP == corev1.ClusterIPNone {
		spec.ClusterIP = corev1.ClusterIPNone
	}
	for i := range spec.ClusterIPs {
		if spec.ClusterIPs[i] == spec.ClusterIP {
			spec.ClusterIPs[i] = spec.ClusterIP
		}
	}
	// The private Service beside a user's has its selector, and comes with it.
	spec.Selector = equal(labels(s.Name, spec.Selector))
}
