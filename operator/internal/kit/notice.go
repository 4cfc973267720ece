package kit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// Notice is something that a person would ask about: an event that is yet to be written.
type Notice struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason and Action are CamelCase words, and Note is a sentence.
	Reason, Action, Note string
}

// Normal is a notice of what is as it should be.
func Normal(reason, action, format string, args ...any) Notice {
	return Notice{corev1.EventTypeNormal, reason, action, fmt.Sprintf(format, args...)}
}

// Warning is a notice of what somebody may have to mend.
func Warning(reason, action, format string, args ...any) Notice {
	return Notice{corev1.EventTypeWarning, reason, action, fmt.Sprintf(format, args...)}
}

// Emit writes the notices as events of an object. It is called after the object's status
// was written, so that an event never tells of what didn't come to be.
func Emit(recorder events.EventRecorder, about runtime.Object, list ...Notice) {
	for _, n := range list {
		recorder.Eventf(about, nil, n.Type, n.Reason, n.Action, "%s", n.Note)
	}
}
