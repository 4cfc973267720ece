package autoscaler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/operator/internal/kindwatch"
)

// watch is the one watch of ScaledObjects, which begins when the first is asked for, on each
// replica that takes wake calls. Clusters without KEDA have none. Until it has all of them they are
// read from the API server.
type watch struct {
	kinds *kindwatch.Kinds
	live  client.Reader
}

func newWatch(mgr ctrl.Manager, namespaces map[string]cache.Config) (*watch, error) {
	kinds, err := kindwatch.New(mgr, "autoscalers", kindwatch.Options{
		Namespaces: namespaces,
		Whole:      true,
		Transform:  slim,
		Most:       1,
		// KEDA writes its status with each look at its triggers.
		Differ: func(before, after client.Object) bool {
			a, ok1 := before.(*unstructured.Unstructured)
			b, ok2 := after.(*unstructured.Unstructured)
			return !ok1 || !ok2 || decode(a) != decode(b)
		},
		Grant: func(schema.GroupVersionKind) string { return "the component config/components/keda" },
	})
	if err != nil {
		return nil, fmt.Errorf("set up the watch of ScaledObjects: %w", err)
	}
	return &watch{kinds: kinds, live: mgr.GetAPIReader()}, nil
}

// get reads a ScaledObject; watched: a change of it will be told.
func (w *watch) get(ctx context.Context, key client.ObjectKey) (u *unstructured.Unstructured, watched bool, err error) {
	w.kinds.Name(types.NamespacedName{}, scaledObjectKind) // for good
	u = newScaledObject(key)
	if watched, err := w.kinds.Get(ctx, key, u); watched {
		return u, true, err //nolint:wrapcheck // it says what it couldn't read
	}
	// Many services may ask, and the API server would be asked each time what kinds it has.
	if err := w.kinds.Problem(scaledObjectKind); meta.IsNoMatchError(err) {
		return nil, false, fmt.Errorf("watch ScaledObjects: %w", err)
	}
	u, err = w.read(ctx, key)
	return u, false, err
}

// read reads a ScaledObject from the API server.
func (w *watch) read(ctx context.Context, key client.ObjectKey) (*unstructured.Unstructured, error) {
	u := newScaledObject(key)
	if err := w.live.Get(ctx, key, u); err != nil {
		return nil, fmt.Errorf("read ScaledObject %s: %w", key, err)
	}
	return u, nil
}

// source is Autoscalers.Source.
func (w *watch) source(find func(context.Context, client.ObjectKey) []reconcile.Request, inTurn func(...reconcile.Request)) source.Source {
	return &kindwatch.Source{Kinds: w.kinds, Handle: func(ctx context.Context, c kindwatch.Change, q kindwatch.Queue) {
		if c.Object == nil {
			return
		}
		if c.Listed {
			inTurn(find(ctx, client.ObjectKeyFromObject(c.Object))...)
			return
		}
		for _, request := range find(ctx, client.ObjectKeyFromObject(c.Object)) {
			q.Add(request)
		}
	}}
}
