package index

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
	found, err := listed(ctx, cached, namespace, "", sought{Service, service, service})
	return found[0], err
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
	found, err := listed(ctx, cached, namespace, "", sought{Target, kindName, name})
	return found[0], err
}

// Sharing finds the other ElasticServices that have an ElasticService's Service, and those that have its target. It may
// itself be among them. They are the cache's own and must not be changed.
func Sharing(ctx context.Context, cached client.Reader, es *v1alpha1.ElasticService) (ofService, ofTarget []v1alpha1.ElasticService, err error) {
	ref := es.Spec.ScaleTargetRef
	found, err := listed(ctx, cached, es.Namespace, es.Name, sought{Service, es.Spec.Service, es.Spec.Service}, sought{Target, ref.Kind + "/" + ref.Name, ref.Name})
	return found[0], found[1], err
}

// sought is a key of an index, and the name that an ElasticService has that has no key.
type sought struct{ index, key, name string }

// listed are, for each of what is sought, the ElasticServices with the key, and the one with the name, if it is
// one of them. The one that asks isn't read by its name.
func listed(ctx context.Context, cached client.Reader, namespace, asks string, all ...sought) (found [2][]v1alpha1.ElasticService, err error) {
	for i, s := range all {
		var list v1alpha1.ElasticServiceList
		if err := cached.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{s.index: s.key}, client.UnsafeDisableDeepCopy); err != nil {
			return found, fmt.Errorf("list ElasticServices of %s in %s: %w", s.key, namespace, err)
		}
		found[i] = list.Items
		if s.name == asks {
			continue
		}
		// It is read to where it stays: most have nothing by the key, and this one.
		found[i] = append(found[i], v1alpha1.ElasticService{})
		namesake := &found[i][len(found[i])-1]
		err := cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: s.name}, namesake, client.UnsafeDisableDeepCopy)
		if err != nil && !apierrors.IsNotFound(err) {
			return found, fmt.Errorf("read ElasticService %s/%s: %w", namespace, s.name, err)
		}
		has := namesake.Spec.Service
		if s.index == Target {
			has = namesake.Spec.ScaleTargetRef.Kind + "/" + namesake.Spec.ScaleTargetRef.Name
		}
		if err != nil || has != s.key {
			found[i] = found[i][:len(found[i])-1]
		}
	}
	return found, nil
}
