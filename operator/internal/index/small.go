package index

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Small is an indexer whose indexes are asked either about one namespace at a time, or, Front and
// SlicePort, about all. The cache's own have each key for both, which takes twice the memory: with ten
// thousand objects of a kind it is a tenth of what they take.
type Small struct {
	Cache cache.Informers
	// All is set where each index is asked about all namespaces.
	All bool
}

// everywhere is what the cache has in place of a namespace where it is asked about all.
const everywhere = "__all_namespaces"

// IndexField implements client.FieldIndexer. A list for which an index isn't finds nothing.
func (s Small) IndexField(ctx context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	informer, err := s.Cache.GetInformer(ctx, o, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %T: %w", o, err)
	}
	// The names and keys are those by which a cache looks for a field's value.
	err = informer.AddIndexers(toolscache.Indexers{"field:" + field: func(o any) ([]string, error) {
		object, ok := o.(client.Object)
		if !ok {
			return nil, fmt.Errorf("index %s: %T is no object", field, o)
		}
		namespace := object.GetNamespace()
		if s.All || field == Front || field == SlicePort {
			namespace = everywhere
		}
		values := keys(object)
		all := make([]string, len(values))
		for i, value := range values {
			all[i] = namespace + "/" + value
		}
		return all, nil
	}})
	if err != nil {
		return fmt.Errorf("add the index %s: %w", field, err)
	}
	return nil
}
