package setup

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"dormouse.dev/dormouse/operator/internal/raising"
)

// eventDelay delays the writing of events: during a wake the API server has more important
// work.
const eventDelay = 200 * time.Millisecond

// manager is a manager whose event recorders write late.
type manager struct {
	ctrl.Manager
	// raises go before events.
	raises *raising.Raises
}

// GetEventRecorder implements ctrl.Manager.
func (m manager) GetEventRecorder(name string) events.EventRecorder {
	return lateRecorder{m.Manager.GetEventRecorder(name), m.raises}
}

// lateRecorder records events with a delay, and lets raises go first. Those of the last moment before the
// process ends are lost.
type lateRecorder struct {
	recorder events.EventRecorder
	raises   *raising.Raises
}

func (r lateRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	regarding = regarding.DeepCopyObject() // the caller may go on to change it
	if related != nil {
		related = related.DeepCopyObject()
	}
	r.after(eventDelay, 0, func() { r.recorder.Eventf(regarding, related, kind, reason, action, note, args...) })
}

// after records after a delay, or later while raises go first, for which it has waited so long before.
func (r lateRecorder) after(delay, waited time.Duration, record func()) {
	time.AfterFunc(delay, func() {
		if again := r.raises.Again(raising.Patient, waited); again > 0 {
			r.after(again, waited+again, record)
			return
		}
		record()
	})
}
