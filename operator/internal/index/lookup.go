package index

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Find finds ElasticServices in the cache.
func Find(ctx context.Context, cached client.Reader, opts ...client.ListOption) []reconcile.Request {
	var list v1alpha1.ElasticServiceList
	// They are only read.
	if err := cached.List(ctx, &list, append(slices.Clone(opts), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // only when the cache has stopped, and so has the operator
	}
	return Requests(list.Items)
}

// Requests asks for a pass of each ElasticService.
func Requests(list []v1alpha1.ElasticService) []reconcile.Request {
	requests := make([]reconcile.Request, len(list))
	for i := range list {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list[i])
	}
	return requests
}

// Named reads ElasticServices of a namespace by their names, which may not be changed; nil: there is
// none.
func Named(ctx context.Context, cached client.Reader, namespace string) func(name string) (*v1alpha1.ElasticService, error) {
	return func(name string) (*v1alpha1.ElasticService, error) {
		es := &v1alpha1.ElasticService{}
		err := cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, es, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // as ForService
		}
		if err != nil {
			return nil, fmt.Errorf("read ElasticService %s/%s: %w", namespace, name, err)
		}
		return es, nil
	}
}

// ForService finds the ElasticService that has a Service: the oldest, where
// there are several. It may not be changed. It returns nil when there is none.
func ForService(ctx context.Context, c client.Reader, namespace, service string) (*v1alpha1.ElasticService, error) {
	found, err := listed(ctx, c, namespace, "", sought{Service, service, service})
	if err != nil {
		return nil, err
	}
	var oldest *v1alpha1.ElasticService
	for i := range found[0] {
		if one := &found[0][i]; oldest == nil || OlderThan(one, oldest) {
			oldest = one
		}
	}
	return oldest, nil
}

// OlderThan reports whether a is older than b. Ties within a second are broken, too.
func OlderThan(a, b *v1alpha1.ElasticService) bool {
	return olderObject(a, b)
}

// ByAge are a list's ElasticServices, the oldest first.
func ByAge(items []v1alpha1.ElasticService) []*v1alpha1.ElasticService {
	sorted := make([]*v1alpha1.ElasticService, len(items))
	for i := range items {
		sorted[i] = &items[i]
	}
	slices.SortFunc(sorted, byAge[*v1alpha1.ElasticService])
	return sorted
}
