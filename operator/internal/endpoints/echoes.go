package endpoints

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// echoTime is how long a write is waited for. Then the cache is believed as it is, and the write is another change when
// it comes.
const echoTime = 10 * time.Second

// Echoes are slices that a controller has written and of which it needn't hear from its own watch. What they are
// isn't remembered: until the cache shows them, nothing can be decided about them. The zero value is ready for use.
type Echoes struct {
	mu sync.Mutex
	// written are the last writes, by the slices' UIDs.
	written map[types.UID]echo
}

// echo is a write: over is the version that the cache had, and version is what it became. Heard is set once the watch
// has shown it, while a pass may still have what it has read before.
type echo struct {
	over, version string
	at            time.Time
	heard         bool
}

// Expect takes in a slice as the API server has answered the write over the cached one. Where the watch was faster,
// it is heard of as any other change.
func (e *Echoes) Expect(now time.Time, cached, written metav1.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.written == nil {
		e.written = map[types.UID]echo{}
	}
	e.written[written.GetUID()] = echo{over: cached.GetResourceVersion(), version: written.GetResourceVersion(), at: now}
}

// Awaits reports whether a slice that was read from the cache is from before its last write.
func (e *Echoes) Awaits(now time.Time, cached metav1.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, ok := e.written[cached.GetUID()]
	if !ok || last.over == cached.GetResourceVersion() && now.Sub(last.at) < echoTime {
		return ok
	}
	delete(e.written, cached.GetUID())
	return false
}

// Heard reports whether a slice that the watch shows is as it was written, and nothing is to be done. Each
// write is heard of once at most, and none is after a change by somebody else.
func (e *Echoes) Heard(seen metav1.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, ok := e.written[seen.GetUID()]
	if !ok || last.heard || last.version != seen.GetResourceVersion() {
		delete(e.written, seen.GetUID())
		return false
	}
	last.heard = true
	e.written[seen.GetUID()] = last
	return true
}

// Forget forgets the write of a slice that is gone.
func (e *Echoes) Forget(gone metav1.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.written, gone.GetUID())
}
