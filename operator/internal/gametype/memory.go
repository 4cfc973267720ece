package gametype

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// memory is what the controller remembers of one GameType between passes. All of it
// can be lost.
type memory struct {
	// uid tells the GameType from a later one of its name.
	uid types.UID
	// number is the highest that a revision has had.
	number int64
	// statusWritten is when the status was last written.
	statusWritten time.Time
	// putOff says that the last pass left the status to the next: what it changed
	// goes on in the Fleets' controller at once, and a player may wait for that.
	putOff bool
	// aheadSince is since when some Fleet has been for a later GameType than the
	// cache shows.
	aheadSince time.Time
	writes     writes
}

// memoryOf is only used by the one worker that has the GameType.
func (r *Reconciler) memoryOf(gt *v1alpha1.GameType) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(gt)
	m := r.memories[key]
	if m == nil || m.uid != gt.UID {
		m = &memory{uid: gt.UID, writes: writes{}}
		r.memories[key] = m
	}
	if u := gt.Status.UpdateRevision; u != nil {
		m.number = max(m.number, u.Number)
	}
	return m
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, key)
}
