package elasticservice

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// memory is what the controller remembers of one object between passes. All of
// it can be lost: a new leader then waits a little longer, and a sleep that had
// begun begins anew.
type memory struct {
	noneUpSince  time.Time
	sleepBegun   *time.Time
	scale        scaleMemory
	lastObstacle string
}

// memoryOf is only used by the one worker that has the object.
func (r *Reconciler) memoryOf(es *v1alpha1.ElasticService) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memories[es.UID]
	if m == nil {
		m = &memory{}
		r.memories[es.UID] = m
	}
	return m
}

func (r *Reconciler) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, uid)
}
