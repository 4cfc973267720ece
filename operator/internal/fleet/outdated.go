package fleet

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// comparison is what came of comparing a Server with a Fleet's template in full.
type comparison struct {
	// generation is the Server's, and template the hash of the Fleet's template.
	generation int64
	template   string
	outdated   bool
}

// markOutdated tells which Servers are of another template than the Fleet's. As a rule a
// Server's hash tells. Where it doesn't, what would be made is compared with what the cache
// has, which are the objects: a newer version of the API may have given both templates a
// further default, and a Server of before has no hash.
func (m *state) markOutdated(f *v1alpha1.Fleet, servers []server, objects []v1alpha1.Server) {
	var cached map[types.UID]*v1alpha1.Server
	var desired *v1alpha1.Server
	compared := make(map[types.UID]comparison)
	for i := range servers {
		s := &servers[i]
		if s.template == m.template {
			continue
		}
		if cached == nil {
			cached, desired = byUID(objects), desiredServer(f, "")
		}
		object := cached[s.uid]
		if object == nil {
			s.outdated = true // The cache doesn't show it yet.
			continue
		}
		c, known := m.compared[s.uid]
		if !known || c.generation != s.generation || c.template != m.template {
			c = comparison{generation: s.generation, template: m.template, outdated: !madeLike(object, desired)}
		}
		compared[s.uid] = c
		s.outdated = c.outdated
	}
	m.compared = compared
}

func byUID(objects []v1alpha1.Server) map[types.UID]*v1alpha1.Server {
	found := make(map[types.UID]*v1alpha1.Server, len(objects))
	for i := range objects {
		found[objects[i].UID] = &objects[i]
	}
	return found
}

// madeLike reports whether a Server is what would be made of the template now. Labels and
// annotations that somebody added to it are theirs.
func madeLike(is, desired *v1alpha1.Server) bool {
	spec := is.Spec
	spec.Drain = desired.Spec.Drain
	annotations := maps.Clone(desired.Annotations)
	delete(annotations, v1alpha1.TemplateHashAnnotation)
	return contains(is.Labels, desired.Labels) && contains(is.Annotations, annotations) && equality.Semantic.DeepEqual(&spec, &desired.Spec)
}

// contains reports whether all of some labels or annotations are among others.
func contains(all, some map[string]string) bool {
	for key, value := range some {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}
