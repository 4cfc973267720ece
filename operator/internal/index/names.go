package index

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/endpoints"
)

// An ElasticService mostly has the name of its Service, and of its target. Then it has no key in those
// indexes, each of which would take some 300 bytes, and is found by its name; and a private Service's name
// mostly tells the Service's. So nobody but the functions here may ask these indexes.

func serviceKeys(o client.Object) []string {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok || es.Spec.Service == es.Name {
		return nil
	}
	return []string{es.Spec.Service}
}

func targetKeys(o client.Object) []string {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok || es.Spec.ScaleTargetRef.Name == es.Name {
		return nil
	}
	return []string{TargetOf(es)}
}

func privateServiceKeys(o client.Object) []string {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok {
		return nil
	}
	name := endpoints.PrivateServiceName(es.Spec.Service)
	if endpoints.PublicServiceName(name) == es.Spec.Service {
		return nil
	}
	return []string{name}
}

// TargetOf is kind/name of an ElasticService's target.
func TargetOf(es *v1alpha1.ElasticService) string {
	return es.Spec.ScaleTargetRef.Kind + "/" + es.Spec.ScaleTargetRef.Name
}

// OfService finds the ElasticServices that have a Service. They are the cache's own and must not be
// changed.
func OfService(ctx context.Context, cached client.Reader, namespace, service string) ([]v1alpha1.ElasticService, error) {
	list, err := listed(ctx, cached, namespace, service, client.MatchingFields{Service: service}, func(es *v1alpha1.ElasticService) bool {
		return es.Spec.Service == service
	})
	if err != nil {
		return nil, fmt.Errorf("list ElasticServices of Service %s/%s: %w", namespace, service, err)
	}
	return list, nil
}

// OfPrivateService finds the ElasticServices that need a private Service of a name. They are the cache's
// own and must not be changed.
func OfPrivateService(ctx context.Context, cached client.Reader, namespace, private string) ([]v1alpha1.ElasticService, error) {
	list, err := OfService(ctx, cached, namespace, endpoints.PublicServiceName(private))
	if err != nil {
		return nil, err
	}
	var more v1alpha1.ElasticServiceList
	err = cached.List(ctx, &more, client.InNamespace(namespace), client.MatchingFields{PrivateService: private}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list ElasticServices of the private Service %s/%s: %w", namespace, private, err)
	}
	return append(list, more.Items...), nil
}

// OfTarget finds the ElasticServices of a target, by its kind/name. They are the cache's own and must not
// be changed.
func OfTarget(ctx context.Context, cached client.Reader, namespace, kindName string) ([]v1alpha1.ElasticService, error) {
	_, name, _ := strings.Cut(kindName, "/")
	list, err := listed(ctx, cached, namespace, name, client.MatchingFields{Target: kindName}, func(es *v1alpha1.ElasticService) bool {
		return TargetOf(es) == kindName
	})
	if err != nil {
		return nil, fmt.Errorf("list ElasticServices of %s in %s: %w", kindName, namespace, err)
	}
	return list, nil
}

// listed are the ElasticServices with a key, and the one of a name, if it is one of them.
func listed(ctx context.Context, cached client.Reader, namespace, name string, key client.MatchingFields, one func(*v1alpha1.ElasticService) bool) ([]v1alpha1.ElasticService, error) {
	namesake, err := Named(ctx, cached, namespace)(name)
	if err != nil {
		return nil, err
	}
	var list v1alpha1.ElasticServiceList
	if err := cached.List(ctx, &list, client.InNamespace(namespace), key, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err // the caller says what it looked for
	}
	if namesake != nil && one(namesake) {
		return append(list.Items, *namesake), nil
	}
	return list.Items, nil
}
