package errortracking

import (
	"context"
	"fmt"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// WatchCrashes reports panics that end the process, and sends the reports before it ends. It
// covers goroutines that defer HandleCrash of apimachinery's runtime package, which are ours
// and those of the Kubernetes libraries. main calls it before it starts anything.
func (r *Reporter) WatchCrashes() {
	if r.client == nil {
		return
	}
	utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(_ context.Context, value any) {
		// A reconciler's panic has been reported, and ends nothing.
		if _, already := value.(ReportedPanic); already {
			return
		}
		r.PanicAbout(value, Subject{})
		r.client.Flush(flushTimeout)
	})
}

// ReportedPanic is a panic that has been reported with its subject already, and isn't reported
// again further up the stack.
type ReportedPanic struct{ Value any }

func (p ReportedPanic) Error() string { return fmt.Sprint(p.Value) }
