package kit

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// AddFinalizer adds a finalizer to an object that doesn't have it. It fails with a conflict if
// somebody has changed the object since it was read.
func AddFinalizer(ctx context.Context, c client.Client, o client.Object, finalizer string) error {
	return changeFinalizers(ctx, c, o, func() bool { return controllerutil.AddFinalizer(o, finalizer) })
}

// RemoveFinalizer removes a finalizer from an object that has it. It fails like AddFinalizer.
func RemoveFinalizer(ctx context.Context, c client.Client, o client.Object, finalizer string) error {
	return changeFinalizers(ctx, c, o, func() bool { return controllerutil.RemoveFinalizer(o, finalizer) })
}

func changeFinalizers(ctx context.Context, c client.Client, o client.Object, change func() bool) error {
	before, ok := o.DeepCopyObject().(client.Object)
	if !ok || !change() {
		return nil
	}
	return c.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
