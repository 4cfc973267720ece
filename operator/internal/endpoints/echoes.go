package endpoints

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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

// echo is a write: version is what it became. Heard is set once the watch has shown it, while a pass may still have
// what it has read before. At is when it was written, or heard of.
type echo struct {
	version string
	at      time.Time
	heard   bool
}

// order compares the version of a slice with the one that was written: it is below 0 where the slice is from before.
// A version that can't be compared is another one.
func (e echo) order(s metav1.Object) int {
	order, err := resourceversion.CompareResourceVersion(s.GetResourceVersion(), e.version)
	if err != nil {
		return 1
	}
	return order
}

// Expect takes in a slice as the API server has answered the write. Where the watch was faster, it is heard of as any
// other change.
func (e *Echoes) Expect(now time.Time, written metav1.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.written == nil {
		e.written = map[types.UID]echo{}
	}
	e.written[written.GetUID()] = echo{version: written.GetResourceVersion(), at: now}
}

// Awaits reports whether a slice that was read from the cache is from before its last write.
func (e *Echoes) Awaits(now time.Time, cached metav1.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, ok := e.written[cached.GetUID()]
	if !ok || last.order(cached) < 0 && now.Sub(last.at) < echoTime {
		return ok
	}
	delete(e.written, cached.GetUID())
	return false
}

// Heard reports whether a slice that the watch shows is as it was written, and nothing is to be done. Each
// write is heard of once at most, and none is after a change by somebody else.
func (e *Echoes) Heard(now time.Time, seen metav1.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, ok := e.written[seen.GetUID()]
	switch order := last.order(seen); {
	case !ok, order < 0: // the watch lags behind
		return false
	case order > 0, last.heard:
		delete(e.written, seen.GetUID())
		return false
	}
	last.at, last.heard = now, true
	e.written[seen.GetUID()] = last
	return true
}

// Forget forgets the write of a slice that is gone.
func (e *Echoes) Forget(gone metav1.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.written, gone.GetUID())
}
