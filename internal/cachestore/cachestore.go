// Package cachestore reads a cache's objects without a copy. A cache's own List copies each object's
// struct into the list, whatever its options: of ten thousand Servers that is 15 MB each time.
package cachestore

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// Store has the objects of one kind that a cache has. It is ready for use.
type Store[T runtime.Object] struct {
	mu sync.RWMutex
	// parts are one for each namespace that the cache watches, or one for all.
	parts []toolscache.Indexer
}

// NewInformer makes a cache's informer, and notes it where it is of the store's kind. It is for
// cache.Options. Find goes on reading an informer after the cache has dropped it, so this kind's must never be
// removed.
func (s *Store[T]) NewInformer(watch toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	informer := toolscache.NewSharedIndexInformer(watch, example, resync, indexers)
	if _, is := example.(T); is {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.parts = append(s.parts, informer.GetIndexer())
	}
	return informer
}

// Find finds the objects of a namespace by a field over which the cache has an index with keys of each namespace,
// as the cache's own indexes have. They are the cache's own and must not be changed. It knows what the cache has so
// far, and doesn't wait until that is all.
func (s *Store[T]) Find(namespace, field, value string) ([]T, error) {
	s.mu.RLock()
	parts := s.parts
	s.mu.RUnlock()
	var found []T
	for _, part := range parts {
		// The names and keys are those by which a cache looks for a field's value.
		objects, err := part.ByIndex("field:"+field, namespace+"/"+value)
		if err != nil {
			return nil, fmt.Errorf("look for %s %s in namespace %s: %w", field, value, namespace, err)
		}
		if len(objects) > 0 && found == nil {
			found = make([]T, 0, len(objects))
		}
		for _, o := range objects {
			if one, is := o.(T); is {
				found = append(found, one)
			}
		}
	}
	return found, nil
}
