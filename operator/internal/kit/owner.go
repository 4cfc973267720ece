package kit

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// OwnerIndex finds objects by the UID of the object that controls them.
type OwnerIndex struct {
	// Key is the index's name in the cache.
	Key string
	// Owner is the kind of the controlling objects. Its version doesn't matter.
	Owner schema.GroupKind
}

// Setup adds the index over objects of owned's kind.
func (i OwnerIndex) Setup(ctx context.Context, indexer client.FieldIndexer, owned client.Object) error {
	err := indexer.IndexField(ctx, owned, i.Key, func(o client.Object) []string {
		if owner := i.Of(o); owner != nil {
			return []string{string(owner.UID)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("add the index %s: %w", i.Key, err)
	}
	return nil
}

// Of is the owner of an object; nil where no object of the kind controls it.
func (i OwnerIndex) Of(o client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != i.Owner.Kind {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || gv.Group != i.Owner.Group {
		return nil
	}
	return owner
}

// Request asks for a pass of the object that controls this one. It is a handler.MapFunc.
func (i OwnerIndex) Request(_ context.Context, o client.Object) []reconcile.Request {
	owner := i.Of(o)
	if owner == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}}
}

// Itself asks for a pass of the object. It is a handler.MapFunc.
func Itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}
