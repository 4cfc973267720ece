package setup

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// eventDelay delays the writing of events: during a wake the API server has more important
// work.
const eventDelay = 200 * time.Millisecond

// lateRecorder records events with a delay. Those of the last moment before the process ends
// are lost.
type lateRecorder struct{ recorder events.EventRecorder }

func (r lateRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	regarding = regarding.DeepCopyObject() // the caller may go on to change it
	if related != nil {
		related = related.DeepCopyObject()
	}
	time.AfterFunc(eventDelay, func() { r.recorder.Eventf(regarding, related, kind, reason, action, note, args...) })
}
