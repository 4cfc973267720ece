package manifests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepAnnotation is on an object that Delete leaves, with keepValue.
const (
	keepAnnotation = "dormouse.dev/undeploy"
	keepValue      = "keep"
)

// Delete undoes Apply in reverse. It begins with every object of a kind that the
// definitions among the objects define, in every namespace, until there are none:
// their finalizers need the workloads that go next, and those may make others
// meanwhile. Each time before it deletes some, before gets all that are there,
// unless it is nil. Delete leaves what has the annotation keepAnnotation.
func Delete(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, before func(users []*unstructured.Unstructured) error, progress Progress) error {
	ordered := inOrder(objects)
	slices.Reverse(ordered)
	if err := deleteUsers(ctx, c, ordered, before, progress); err != nil {
		return err
	}
	for step := stageObjects; step >= stageNamespaces; step-- {
		var now []*unstructured.Unstructured
		for _, object := range ordered {
			switch {
			case stageOf(object) != step:
			case object.GetAnnotations()[keepAnnotation] == keepValue:
				progress.say("leave %s: its annotation %s says so", describe(object), keepAnnotation)
			default:
				now = append(now, object)
			}
		}
		if err := deleteAll(ctx, c, now, progress); err != nil {
			return err
		}
	}
	return nil
}

func deleteUsers(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, before func(users []*unstructured.Unstructured) error, progress Progress) error {
	for {
		users, err := Users(ctx, c, objects)
		if err != nil || len(users) == 0 {
			return err
		}
		if before != nil {
			if err := before(users); err != nil {
				return err
			}
		}
		if err := deleteAll(ctx, c, unowned(users), progress); err != nil {
			return err
		}
	}
}

// unowned are the objects that none of the others owns. Those that one does go with
// it, when it lets them: an owner would only make them again.
func unowned(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	there := map[types.UID]bool{}
	for _, object := range objects {
		there[object.GetUID()] = true
	}
	return slices.DeleteFunc(slices.Clone(objects), func(object *unstructured.Unstructured) bool {
		return slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return there[owner.UID] })
	})
}

// Users lists every object of a kind that the definitions among the objects define, in
// every namespace.
func Users(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var users []*unstructured.Unstructured
	for _, object := range objects {
		if stageOf(object) != stageDefinitions {
			continue
		}
		found, err := instancesOf(ctx, c, object)
		if err != nil {
			return nil, err
		}
		users = append(users, found...)
	}
	return users, nil
}

// instancesOf lists the objects of a definition's kind.
func instancesOf(ctx context.Context, c client.Client, definition *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	kind, err := definedKind(definition)
	if err != nil {
		return nil, err
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = c.List(ctx, &list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil // The definition has gone already.
	}
	if err != nil {
		return nil, fmt.Errorf("list objects of %s: %w", describe(definition), err)
	}
	var found []*unstructured.Unstructured
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

// definedKind is the kind that a definition defines, in its stored version.
func definedKind(definition *unstructured.Unstructured) (schema.GroupVersionKind, error) {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok && version["storage"] == true {
			if name, ok := version["name"].(string); ok && group != "" && kind != "" {
				return schema.GroupVersionKind{Group: group, Version: name, Kind: kind}, nil
			}
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("read %s: it has no group, kind or stored version", describe(definition))
}

// deleteAll deletes objects and waits until they are gone.
func deleteAll(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, progress Progress) error {
	for _, object := range objects {
		progress.say("delete %s", describe(object))
		err := c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !isGone(err) {
			return fmt.Errorf("delete %s: %w", describe(object), err)
		}
	}
	for _, object := range objects {
		if err := waitGone(ctx, c, object); err != nil {
			return err
		}
	}
	return nil
}

func waitGone(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(object.GroupVersionKind())
	var last error
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		last = c.Get(ctx, client.ObjectKeyFromObject(object), current)
		another := last == nil && object.GetUID() != "" && object.GetUID() != current.GetUID()
		return another || isGone(last), nil
	})
	if err == nil {
		return nil
	}
	if finalizers := current.GetFinalizers(); last == nil && len(finalizers) > 0 {
		last = fmt.Errorf("its finalizers remain: %s; does what they belong to run?", strings.Join(finalizers, ", "))
	}
	return fmt.Errorf("wait until %s is gone: %w", describe(object), errors.Join(err, last))
}

// isGone reports whether an object, or its whole kind, is not there.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
