package dataplane

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
)

// departed has the counts of clients whose routes are gone, by the names of their Services. These
// clients are relayed on. The next ElasticService of such a Service counts them, too, and doesn't
// sleep under them.
type departed struct {
	counts map[types.NamespacedName]*service.Activity
	// tidyAt is how many there may be before those without clients are forgotten.
	tidyAt int
}

// keep keeps the counts of a route that is gone.
func (d *departed) keep(of types.NamespacedName, counts *service.Activity) {
	if counts.Clients() == 0 {
		return
	}
	if d.counts == nil {
		d.counts = map[types.NamespacedName]*service.Activity{}
	}
	d.counts[of] = counts
	if len(d.counts) > d.tidyAt {
		maps.DeleteFunc(d.counts, func(_ types.NamespacedName, a *service.Activity) bool { return a.Clients() == 0 })
		d.tidyAt = 2*len(d.counts) + reapLeast
	}
}

// take is what the next route of a Service counts in.
func (d *departed) take(of types.NamespacedName) *service.Activity {
	counts := d.counts[of]
	if counts == nil {
		return &service.Activity{}
	}
	delete(d.counts, of)
	return counts
}
