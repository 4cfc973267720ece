package kit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// Notice is an event that is yet to be written.
type Notice struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason and Action are in CamelCase, and Note is a sentence.
	Reason, Action, Note string
}

// Normal is a notice that all is well.
func Normal(reason, action, format string, args ...any) Notice {
	return Notice{corev1.EventTypeNormal, reason, action, fmt.Sprintf(format, args...)}
}

// Warning is a notice of something that somebody may have to fix.
func Warning(reason, action, format string, args ...any) Notice {
	return Notice{corev1.EventTypeWarning, reason, action, fmt.Sprintf(format, args...)}
}

// Emit writes the notices as events of an object. It is called after the object's status was
// written, so that an event never reports what didn't happen.
func Emit(recorder events.EventRecorder, about runtime.Object, list ...Notice) {
	for _, n := range list {
		recorder.Eventf(about, nil, n.Type, n.Reason, n.Action, "%s", n.Note)
	}
}
