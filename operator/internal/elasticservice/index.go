package elasticservice

import (
	"context"
	"fmt"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Keys of the cache's indexes.
const (
	// IndexService finds ElasticServices by the name of their Service.
	IndexService = "spec.service"
	// indexPrivate finds them by the name of the private Service that they need.
	indexPrivate = "private-service"
	// indexTarget finds them by kind/name of their target.
	indexTarget = "spec.scaleTargetRef"
	// indexSliceService finds slices by the user's Service that they are about.
	indexSliceService = "dormouse.private-service"
	// indexSlicePort finds Dormouse's slices by a port that they name.
	indexSlicePort = "dormouse.port"
)

// SetupIndexes adds the indexes that the controller and the wake endpoint use.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object client.Object
		key    string
		fn     client.IndexerFunc
	}{
		{&v1alpha1.ElasticService{}, IndexService, func(o client.Object) []string {
			return []string{o.(*v1alpha1.ElasticService).Spec.Service}
		}},
		{&v1alpha1.ElasticService{}, indexPrivate, func(o client.Object) []string {
			return []string{privateServiceName(o.(*v1alpha1.ElasticService).Spec.Service)}
		}},
		{&v1alpha1.ElasticService{}, indexTarget, func(o client.Object) []string {
			ref := o.(*v1alpha1.ElasticService).Spec.ScaleTargetRef
			return []string{ref.Kind + "/" + ref.Name}
		}},
		{&v1alpha1.ElasticService{}, indexFront, frontKeys},
		{&v1alpha1.ElasticService{}, indexPlayers, playerListKeys},
		{&discoveryv1.EndpointSlice{}, indexSliceService, func(o client.Object) []string {
			return []string{o.GetLabels()[v1alpha1.PrivateServiceLabel]}
		}},
		{&discoveryv1.EndpointSlice{}, indexSlicePort, func(o client.Object) []string {
			if o.GetLabels()[discoveryv1.LabelManagedBy] != v1alpha1.ManagedBy {
				return nil
			}
			var ports []string
			for _, p := range o.(*discoveryv1.EndpointSlice).Ports {
				if p.Port != nil {
					ports = append(ports, strconv.Itoa(int(*p.Port)))
				}
			}
			return ports
		}},
	} {
		if err := indexer.IndexField(ctx, i.object, i.key, i.fn); err != nil {
			return fmt.Errorf("add the index %s: %w", i.key, err)
		}
	}
	return nil
}

// ForService finds the ElasticService that has a Service: the oldest, where
// there are several. It returns nil when there is none.
func ForService(ctx context.Context, c client.Reader, namespace, service string) (*v1alpha1.ElasticService, error) {
	var list v1alpha1.ElasticServiceList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{IndexService: service}); err != nil {
		return nil, fmt.Errorf("list ElasticServices of Service %s/%s: %w", namespace, service, err)
	}
	var oldest *v1alpha1.ElasticService
	for i := range list.Items {
		if oldest == nil || olderThan(&list.Items[i], oldest) {
			oldest = &list.Items[i]
		}
	}
	return oldest, nil
}

func olderThan(a, b *v1alpha1.ElasticService) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}
