package fleet

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/templatehash"
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
			cached, desired = byUID(objects), desiredServer(f, "", places.None)
		}
		object := cached[s.uid]
		if object == nil {
			s.outdated = true // the cache doesn't show the Server yet
			continue
		}
		c, ok := m.compared[s.uid]
		if !ok || c.generation != s.generation || c.template != m.template {
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

// madeLike reports whether a Server is like one that would be created from the template now.
// Labels and annotations that somebody added to it don't count.
func madeLike(is, desired *v1alpha1.Server) bool {
	spec := templatehash.RevisionSpec(is.Spec)
	spec.Drain = desired.Spec.Drain
	want := templatehash.RevisionSpec(desired.Spec)
	annotations := maps.Clone(desired.Annotations)
	delete(annotations, wellknown.TemplateHashAnnotation)
	return contains(is.Labels, desired.Labels) && contains(is.Annotations, annotations) && equality.Semantic.DeepEqual(&spec, &want)
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
