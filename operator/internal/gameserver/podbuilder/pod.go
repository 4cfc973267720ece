// Package podbuilder decides what a Server's Pod is made of: the user's template, the sidecar, and
// what both need. It is a function of the Server, of what the administrator says of sidecars, and of
// the host ports that were picked.
//
// pod.go is the whole, game.go is what the game's container gets, sidecar.go the container beside it,
// and hash.go tells by which changes of a Server its Pod would become another.
package podbuilder

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/scheduling"
)

// Annotations that tell cluster autoscalers that Pods must stay.
const (
	safeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// Build builds a Server's Pod: the template, with the sidecar and what it and the game need.
// hostPorts are the picked ports, in the order of spec.ports.
func Build(s *v1alpha1.Server, sidecar Sidecar, hostPorts []int32, deletable bool) *corev1.Pod {
	template := s.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: s.Namespace,
			Labels: template.Labels, Annotations: template.Annotations,
			Finalizers: template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Server")),
			},
		},
		Spec: template.Spec,
	}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, wellknown.ServerLabel, s.Name)
	owner, fleet := metav1.GetControllerOfNoCopy(s), ""
	if owner != nil && schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() == v1alpha1.GroupVersion.WithKind("Fleet").GroupKind() {
		fleet = owner.Name // its labels may say anything
	}
	if label := cmp.Or(s.Labels[wellknown.FleetLabel], fleet); label != "" {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, wellknown.FleetLabel, label)
	}
	if fleet != "" {
		scheduling.Pack(&pod.Spec, fleet) // where it is Distributed, the template says so
	}
	if len(s.Spec.Storage) > 0 {
		besideDisks(s, pod)
	} else {
		delete(pod.Labels, wellknown.DisksLabel) // a template's
	}
	name := gamepod.Container(s)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, gamepod.ContainerAnnotation, name)
	if owner == nil {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, wellknown.PodHashAnnotation, Hash(&s.Spec))
	}
	SetDeletable(&pod.ObjectMeta, deletable)
	// A Pod that names none gets those of its ServiceAccount, by which a game's image may be pulled.
	if len(pod.Spec.ImagePullSecrets) > 0 {
		pod.Spec.ImagePullSecrets = disks.PullSecrets(pod.Spec.ImagePullSecrets, sidecar.PullSecrets)
	}
	if pod.Spec.AutomountServiceAccountToken == nil {
		pod.Spec.AutomountServiceAccountToken = new(false)
	}
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i >= 0 {
		buildGame(s, &pod.Spec, &pod.Spec.Containers[i], hostPorts)
	}
	beside, hasAPI := buildSidecar(s, sidecar, hostPorts), s.Annotations[wellknown.GameAPIAnnotation] == "true"
	setCredential(&pod.Spec, &beside, sidecar.ReportKey)
	if hasAPI {
		setCode(s, &beside)
	}
	if hasAPI && i >= 0 {
		setEnv(&pod.Spec.Containers[i], corev1.EnvVar{Name: gameapi.URLEnv, Value: sidecar.APIURL})
		setCode(s, &pod.Spec.Containers[i])
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, wellknown.GameAPIAnnotation, "true")
	} else {
		delete(pod.Annotations, wellknown.GameAPIAnnotation) // a template's
	}
	addSidecar(&pod.Spec, beside, sidecar.AfterGame && !awaitsSidecar(s))
	if sidecar.ReportKey != "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, wellknown.ReportKeyAnnotation, sidecar.ReportKey)
	} else {
		delete(pod.Annotations, wellknown.ReportKeyAnnotation) // a template's
	}
	return pod
}

// SetDeletable notes on a Pod whether it may be evicted.
func SetDeletable(m *metav1.ObjectMeta, deletable bool) {
	metav1.SetMetaDataLabel(m, wellknown.DeletionAllowedLabel, strconv.FormatBool(deletable))
	metav1.SetMetaDataAnnotation(m, safeToEvict, strconv.FormatBool(deletable))
	metav1.SetMetaDataAnnotation(m, doNotDisrupt, strconv.FormatBool(!deletable))
}

// disksWeight makes the node that has the Pods of a Server's disks better than any other
// preference of a scheduler's.
const disksWeight = 100

// besideDisks has a Server's Pod and the others that mount its disks find each other: a disk may be
// one node's at a time.
func besideDisks(s *v1alpha1.Server, pod *corev1.Pod) {
	metav1.SetMetaDataLabel(&pod.ObjectMeta, wellknown.DisksLabel, s.Name)
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.PodAffinity == nil {
		pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{}
	}
	near := pod.Spec.Affinity.PodAffinity
	near.PreferredDuringSchedulingIgnoredDuringExecution = append(near.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.WeightedPodAffinityTerm{Weight: disksWeight, PodAffinityTerm: disks.WithDisksOf(s.Name)})
}
