package fleet

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// memory is what the controller remembers of one Fleet between passes. All of it
// can be lost.
type memory struct {
	// uid tells the Fleet from a later one of its name.
	uid types.UID
	// generation is that of the spec which template is a hash of.
	generation int64
	template   string
	// compared are Servers whose template had to be compared in full.
	compared  map[types.UID]comparison
	backoff   backoff
	beginning beginning
	// statusWritten is when the status was last written.
	statusWritten time.Time
	// putOff says that the last pass left the status to the next: what it changed
	// goes on in the Servers' controller at once, and a player may wait for that.
	putOff bool

	// mu guards writes while calls are made side by side.
	mu     sync.Mutex
	writes writes
}

// memoryOf is only used by the one worker that has the Fleet.
func (r *Reconciler) memoryOf(f *v1alpha1.Fleet) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(f)
	m := r.memories[key]
	if m == nil || m.uid != f.UID {
		m = &memory{uid: f.UID, writes: writes{}}
		r.memories[key] = m
	}
	return m
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, key)
}

// follow begins anew with the delays when the template has changed: it may be
// mended, and whoever mended it shouldn't wait.
func (m *memory) follow(f *v1alpha1.Fleet) {
	if m.generation == f.Generation {
		return
	}
	if hash := templatehash.Of(f.Spec.Template); hash != m.template {
		m.backoff.forgive()
		m.template = hash
	}
	m.generation = f.Generation
}
