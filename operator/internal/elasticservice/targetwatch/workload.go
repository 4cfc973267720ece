package targetwatch

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/operator/internal/target"
)

// maxSelector bounds the selector that is kept of an object, in bytes. Kubernetes bounds neither its requirements
// nor their values, and anybody may make Deployments that no ElasticService names.
const maxSelector = 1 << 10

// workload is a Deployment or a StatefulSet with no more of its spec than what a target's says. A whole one in
// memory is four times as large.
type workload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is nil once it is in says.
	Spec *workloadSpec `json:"spec,omitempty"`

	// says is what the spec says; nil: it has no selector that is well-formed and short.
	says *target.Workload
}

type workloadSpec struct {
	Replicas *int32                `json:"replicas,omitempty"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	Template struct {
		Spec struct {
			Containers []container `json:"containers,omitempty"`
		} `json:"spec"`
	} `json:"template"`
	VolumeClaimTemplates                 []struct{}                                              `json:"volumeClaimTemplates,omitempty"`
	PersistentVolumeClaimRetentionPolicy *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy `json:"persistentVolumeClaimRetentionPolicy,omitempty"`
}

type container struct {
	ReadinessProbe *struct{} `json:"readinessProbe,omitempty"`
}

// speaks is what the spec says.
func (w *workload) speaks() *target.Workload {
	if w.Spec == nil {
		return w.says
	}
	probed := slices.ContainsFunc(w.Spec.Template.Spec.Containers, func(c container) bool { return c.ReadinessProbe != nil })
	says, err := target.Says(w.Spec.Replicas, w.Spec.Selector, probed)
	if err != nil || len(says.Selector) > maxSelector {
		return nil // it is read, and its error told
	}
	says.LosesDisks = target.LosesDisks(len(w.Spec.VolumeClaimTemplates), w.Spec.PersistentVolumeClaimRetentionPolicy)
	return &says
}

// DeepCopyObject implements runtime.Object. A spec isn't copied, nor what it says: both are only read.
func (w *workload) DeepCopyObject() runtime.Object {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	return &c
}

type workloadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []workload `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *workloadList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

// typed is what an object of a kind is decoded into, and a scheme that has it for that kind; nil: its metadata.
func typed(kind schema.GroupVersionKind) (*runtime.Scheme, client.Object) {
	if !slices.Contains(usual, kind) {
		return nil, nil
	}
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(kind, &workload{})
	s.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &workloadList{})
	metav1.AddToGroupVersion(s, kind.GroupVersion())
	return s, &workload{}
}
