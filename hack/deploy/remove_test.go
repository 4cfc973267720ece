package main

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/wellknown"
)

func objectOf(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func definitionOf(group, kind, name string) *unstructured.Unstructured {
	u := objectOf("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name)
	u.Object["spec"] = map[string]any{
		"group": group, "names": map[string]any{"kind": kind}, "versions": []any{map[string]any{"name": "v1alpha1", "storage": true}},
	}
	return u
}

// A Backup's finalizer deletes what it keeps, unless its annotation says otherwise. Who removes Dormouse
// keeps the copies.
func TestTheArchivesOutliveDormouse(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, kind := range []schema.GroupVersionKind{
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "dormouse.dev", Version: "v1alpha1", Kind: "Backup"},
		{Group: "dormouse.dev", Version: "v1alpha1", Kind: "Server"},
		{Group: "other.example", Version: "v1alpha1", Kind: "Backup"},
	} {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	installed := []*unstructured.Unstructured{
		definitionOf("dormouse.dev", "Backup", "backups.dormouse.dev"), definitionOf("dormouse.dev", "Server", "servers.dormouse.dev"),
		definitionOf("other.example", "Backup", "backups.other.example"),
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, o := range append(slices.Clone(installed),
		objectOf("dormouse.dev/v1alpha1", "Backup", "games", "one"), objectOf("dormouse.dev/v1alpha1", "Backup", "shop", "two"),
		objectOf("dormouse.dev/v1alpha1", "Server", "games", "survival"), objectOf("other.example/v1alpha1", "Backup", "games", "theirs")) {
		builder = builder.WithObjects(o.DeepCopy())
	}
	var kept, deleted []string
	refused := errors.New("not yours")
	var refuse error
	meanwhile := objectOf("dormouse.dev/v1alpha1", "Backup", "games", "three") // the operator goes on until the end
	c := builder.WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if refuse != nil {
				return refuse
			}
			return c.Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			now := o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
				return err
			}
			if deleted = append(deleted, o.GetName()); now.GetAnnotations()[wellknown.KeepArchiveAnnotation] == "true" {
				kept = append(kept, o.GetName())
			}
			if err := c.Delete(ctx, o, opts...); err != nil || o.GetName() != "one" {
				return err
			}
			return c.Create(ctx, meanwhile)
		},
	}).Build()
	refuse = refused
	if err := remove(t.Context(), c, installed, nil); !errors.Is(err, refused) || len(deleted) != 0 {
		t.Errorf("though the archives can't be kept, %v are deleted (%v)", deleted, err)
	}
	refuse = nil
	if err := remove(t.Context(), c, installed, nil); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(kept); !slices.Equal(kept, []string{"one", "three", "two"}) || len(deleted) != 8 {
		t.Errorf("of %v the archives of %v stay, want those of one, two and three", deleted, kept)
	}
}
