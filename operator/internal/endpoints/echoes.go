package endpoints

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Echoes are slices that a controller has written and of which it needn't hear from its own watch. The zero value
// is ready for use.
type Echoes struct {
	mu sync.Mutex
	// versions are the resourceVersions that were written last, by the slices' UIDs.
	versions map[types.UID]string
}

// Expect takes in a slice as the API server has answered the write. Where the watch was faster, it is heard of
// as any other change.
func (e *Echoes) Expect(written metav1.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.versions == nil {
		e.versions = map[types.UID]string{}
	}
	e.versions[written.GetUID()] = written.GetResourceVersion()
}

// Heard reports whether a slice that the watch shows is as it was written, and nothing is to be done. Each
// write is heard of once at most, and none is after a change by somebody else.
func (e *Echoes) Heard(seen metav1.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	version, ok := e.versions[seen.GetUID()]
	delete(e.versions, seen.GetUID())
	return ok && version == seen.GetResourceVersion()
}
