package errortracking

import (
	"context"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// WatchCrashes reports panics that end the process, and has them sent before it
// ends: those of goroutines that defer HandleCrash of apimachinery's runtime
// package, which are ours and those of the Kubernetes libraries. It is for main,
// before it starts anything.
func (r *Reporter) WatchCrashes() {
	if r.client == nil {
		return
	}
	utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(_ context.Context, value any) {
		// A reconciler's panic has been reported, and ends nothing.
		if _, already := value.(reportedPanic); already {
			return
		}
		r.panicked(value, subject{})
		r.client.Flush(flushTimeout)
	})
}
