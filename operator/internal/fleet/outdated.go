package fleet

import (
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/fleet/serverbuilder"
	"dormouse.dev/dormouse/operator/internal/places"
)

// comparison is the result of comparing a Server with a Fleet's template in full.
type comparison struct {
	// generation is the Server's, and template is the hash of the Fleet's template.
	generation int64
	template   string
	outdated   bool
}

// markOutdated marks the Servers that are of another template than the Fleet's. Usually a
// Server's hash decides. Where it differs, or an older Server has none, the Server that would
// be created is compared with the cached object: a newer version of the API may have given both
// templates another default.
func (m *state) markOutdated(f *v1alpha1.Fleet, servers []server, objects []*v1alpha1.Server) {
	var cached map[types.UID]*v1alpha1.Server
	var desired *v1alpha1.Server
	compared := make(map[types.UID]comparison)
	for i := range servers {
		s := &servers[i]
		if s.template == m.template {
			continue
		}
		if cached == nil {
			cached, desired = byUID(objects), serverbuilder.Build(f, m.template, "", places.None)
		}
		object := cached[s.uid]
		if object == nil {
			s.outdated = true // the cache doesn't show the Server yet
			continue
		}
		c, ok := m.compared[s.uid]
		if !ok || c.generation != s.generation || c.template != m.template {
			c = comparison{generation: s.generation, template: m.template, outdated: !serverbuilder.Like(object, desired)}
		}
		compared[s.uid] = c
		s.outdated = c.outdated
	}
	m.compared = compared
}

func byUID(objects []*v1alpha1.Server) map[types.UID]*v1alpha1.Server {
	found := make(map[types.UID]*v1alpha1.Server, len(objects))
	for i := range objects {
		found[objects[i].UID] = objects[i]
	}
	return found
}
