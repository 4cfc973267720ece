package serverfiles

import (
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/wellknown"
)

// mark notes on an object what it is made from.
func mark(o client.Object, hash string) { annotate(o, wellknown.FilesHashAnnotation, hash) }

func annotate(o client.Object, name, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	o.SetAnnotations(annotations)
}

// mostWait is how long a Deployment may wait for its last client: where strangers connect all the time there is none.
const mostWait = 24 * time.Hour

// awaitsLastClient is for how long an object stays as it is, as long as somebody is connected; 0: it doesn't. It is a
// Deployment then: to change it ends its Pod, with all uploads, and what is new is the sidecar's alone, as after an
// upgrade.
func awaitsLastClient(now time.Time, have, desired client.Object) time.Duration {
	d, ok := have.(*appsv1.Deployment)
	if !ok || ptr.Deref(d.Spec.Replicas, 1) == 0 || d.Status.ReadyReplicas == 0 {
		return 0
	}
	is, want := have.GetAnnotations(), desired.GetAnnotations()
	asked, has := is[wellknown.FilesAskedAnnotation] // an earlier version's has none
	if is[wellknown.FilesHashAnnotation] == want[wellknown.FilesHashAnnotation] || has && asked != want[wellknown.FilesAskedAnnotation] {
		return 0
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Add(mostWait).Sub(now)
		}
	}
	return mostWait
}

// asDesired reports whether an object has all that is desired, and nothing that was desired before.
// What it has beyond that is a default, or somebody else's.
func asDesired(have, desired client.Object) bool {
	if have.GetAnnotations()[wellknown.FilesHashAnnotation] != desired.GetAnnotations()[wellknown.FilesHashAnnotation] {
		return false
	}
	is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(have)
	if err != nil {
		return false
	}
	want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return false
	}
	labelled := func(o client.Object) map[string]any {
		return map[string]any{"labels": values(o.GetLabels()), "annotations": values(o.GetAnnotations())}
	}
	return within(want["spec"], is["spec"]) && within(labelled(desired), labelled(have))
}

func values(of map[string]string) map[string]any {
	all := map[string]any{}
	for key, value := range of {
		all[key] = value
	}
	return all
}

// within reports whether JSON has all that is in another. What is empty is in any.
func within(part, whole any) bool {
	switch p := part.(type) {
	case nil:
		return true
	case map[string]any:
		w, ok := whole.(map[string]any)
		if !ok {
			return len(p) == 0
		}
		for key, value := range p {
			if !within(value, w[key]) {
				return false
			}
		}
		return true
	case []any:
		w, ok := whole.([]any)
		if len(p) == 0 {
			return true
		}
		if !ok || len(w) != len(p) {
			return false
		}
		for i := range p {
			if !within(p[i], w[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(part, whole)
}
