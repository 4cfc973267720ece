package autoscaler

import (
	"cmp"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// scaledObjectKind is KEDA's. No Go type of KEDA's is used, which would bring its dependencies.
var scaledObjectKind = schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"}

// KEDA's annotations, as of 2.11 and up: with paused it scales nothing, with paused-replicas it
// scales to that number once and nothing then. The latter counts where both are there.
const (
	pausedAnnotation         = "autoscaling.keda.sh/paused"
	pausedReplicasAnnotation = "autoscaling.keda.sh/paused-replicas"
)

// defaultMax is KEDA's maxReplicaCount where a ScaledObject has none.
const defaultMax = 100

// scaledObject is what is read of a ScaledObject.
type scaledObject struct {
	name     string
	uid      types.UID
	target   v1alpha1.ScaleTargetRef
	min, max int32
	// idle is set where it has an idleReplicaCount, which KEDA wants to be 0.
	idle bool
	// paused reports whether KEDA takes it for paused, and heldOpen whether its annotation says
	// that it isn't.
	paused, heldOpen bool
	// pausedBy is the UID of the ElasticService for which Dormouse paused it.
	pausedBy string
}

// decode reads a ScaledObject as KEDA does. What isn't of the right type counts as absent.
func decode(u *unstructured.Unstructured) scaledObject {
	so := scaledObject{name: u.GetName(), uid: u.GetUID(), max: defaultMax}
	ref, _, _ := unstructured.NestedStringMap(u.Object, "spec", "scaleTargetRef")
	so.target = v1alpha1.ScaleTargetRef{APIVersion: cmp.Or(ref["apiVersion"], "apps/v1"), Kind: cmp.Or(ref["kind"], "Deployment"), Name: ref["name"]}
	if n, ok, _ := unstructured.NestedInt64(u.Object, "spec", "minReplicaCount"); ok {
		so.min = int32(n) //nolint:gosec // KEDA has it as an int32
	}
	if n, ok, _ := unstructured.NestedInt64(u.Object, "spec", "maxReplicaCount"); ok {
		so.max = int32(n) //nolint:gosec // KEDA has it as an int32
	}
	_, so.idle, _ = unstructured.NestedInt64(u.Object, "spec", "idleReplicaCount")
	annotations := u.GetAnnotations()
	_, at := annotations[pausedReplicasAnnotation]
	if value, ok := annotations[pausedAnnotation]; ok {
		is, err := strconv.ParseBool(value)
		so.paused, so.heldOpen = is || err != nil, !is && err == nil
	}
	so.paused = so.paused || at
	so.pausedBy = annotations[wellknown.PausedByAnnotation]
	return so
}

// newScaledObject is one without contents.
func newScaledObject(key client.ObjectKey) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(scaledObjectKind)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return u
}

// slim keeps of a ScaledObject what decode reads.
func slim(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	kept := newScaledObject(client.ObjectKeyFromObject(u))
	kept.SetUID(u.GetUID())
	kept.SetResourceVersion(u.GetResourceVersion())
	annotations := map[string]string{}
	for _, name := range []string{pausedAnnotation, pausedReplicasAnnotation, wellknown.PausedByAnnotation} {
		if value, ok := u.GetAnnotations()[name]; ok {
			annotations[name] = value
		}
	}
	if len(annotations) > 0 {
		kept.SetAnnotations(annotations)
	}
	spec := map[string]any{}
	for _, name := range []string{"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "idleReplicaCount"} {
		if value, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", name); ok {
			spec[name] = value
		}
	}
	kept.Object["spec"] = spec
	return kept, nil
}
