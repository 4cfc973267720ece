package setup

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// newCache makes the manager's cache. For a kind that it has from several namespaces, such as
// Pods, it looks up with each read whether the kind has namespaces at all.
func newCache(config *rest.Config, o cache.Options) (cache.Cache, error) {
	o.Mapper = &rememberingMapper{RESTMapper: o.Mapper}
	c, err := cache.New(config, o)
	if err != nil {
		return nil, err //nolint:wrapcheck // the manager says what it couldn't make
	}
	return newInTurn(c), nil
}

// rememberingMapper remembers where the API server has a kind's version. The cache's kinds are
// the operator's own, for which that never changes.
type rememberingMapper struct {
	meta.RESTMapper
	mappings sync.Map // *meta.RESTMapping by schema.GroupVersionKind
}

// RESTMapping implements meta.RESTMapper.
func (m *rememberingMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	key := kind.WithVersion(versions[0])
	if mapping, ok := m.mappings.Load(key); ok {
		return mapping.(*meta.RESTMapping), nil
	}
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err == nil {
		m.mappings.Store(key, found)
	}
	return found, err
}
