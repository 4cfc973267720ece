package setup

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// eventDelay is how much later events are written than they happen: while a wake is
// under way the API server has better to do.
const eventDelay = 200 * time.Millisecond

// lateRecorder records events a moment later. What happens in the moment before the
// process ends isn't told.
type lateRecorder struct{ recorder events.EventRecorder }

func (r lateRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	regarding = regarding.DeepCopyObject() // its owner goes on with it
	if related != nil {
		related = related.DeepCopyObject()
	}
	time.AfterFunc(eventDelay, func() { r.recorder.Eventf(regarding, related, kind, reason, action, note, args...) })
}
