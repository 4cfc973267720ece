package manifests

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Progress is told, in a line without an end, what is being done. Nil is told
// nothing.
type Progress func(line string)

func (p Progress) say(format string, values ...any) {
	if p != nil {
		p(fmt.Sprintf(format, values...))
	}
}

// poll is how often the cluster is asked while something is awaited.
const poll = 200 * time.Millisecond

// Apply applies the objects on the server's side as owner: namespaces first, then
// definitions, waiting until they can be used, then access, and the rest. Fields
// that somebody else owns become ours. It doesn't wait for workloads; see
// [WaitAvailable].
func Apply(ctx context.Context, c client.Client, owner string, objects []*unstructured.Unstructured, progress Progress) error {
	objects = inOrder(objects)
	for i, object := range objects {
		progress.say("apply %s", describe(object))
		// The answer replaces what was sent, and the caller's object is not ours.
		config := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		if err := c.Apply(ctx, config, client.FieldOwner(owner), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s: %w", describe(object), err)
		}
		last := i+1 == len(objects) || stageOf(objects[i+1]) != stageDefinitions
		if stageOf(object) == stageDefinitions && last {
			if err := waitEstablished(ctx, c, objects); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitEstablished waits until the API server serves every definition among the
// objects.
func waitEstablished(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if stageOf(object) != stageDefinitions {
			continue
		}
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(object.GroupVersionKind())
		var last error
		err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
			last = c.Get(ctx, client.ObjectKeyFromObject(object), current)
			return last == nil && hasCondition(current, string(apiextensionsv1.Established)), nil
		})
		if err != nil {
			return fmt.Errorf("wait until %s is established: %w", describe(object), errors.Join(err, last))
		}
	}
	return nil
}

// hasCondition reports whether a condition of the object is True.
func hasCondition(object *unstructured.Unstructured, name string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == name {
			return condition["status"] == "True"
		}
	}
	return false
}
