// Package condition builds metav1.Conditions, with one short call each.
package condition

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// True is a condition that holds.
func True(kind, reason, format string, args ...any) metav1.Condition {
	return build(kind, metav1.ConditionTrue, reason, format, args)
}

// False is a condition that doesn't hold; the message says what to change.
func False(kind, reason, format string, args ...any) metav1.Condition {
	return build(kind, metav1.ConditionFalse, reason, format, args)
}

// Unknown is a condition that could not be observed.
func Unknown(kind, reason, format string, args ...any) metav1.Condition {
	return build(kind, metav1.ConditionUnknown, reason, format, args)
}

func build(kind string, status metav1.ConditionStatus, reason, format string, args []any) metav1.Condition {
	message := fmt.Sprintf(format, args...)
	if len(message) > mostBytes {
		message = strings.ToValidUTF8(message[:mostBytes-len("...")], "") + "..."
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// mostBytes bounds a message. The API server refuses a status whose message is longer than
// 32,768 characters, and nobody reads so much.
const mostBytes = 4096

// SetAll replaces conditions by type, keeps the transition time of those whose status stays,
// and sets the observed generation of each.
func SetAll(conditions *[]metav1.Condition, generation int64, now metav1.Time, set ...metav1.Condition) {
	for _, c := range set {
		c.ObservedGeneration = generation
		c.LastTransitionTime = now
		meta.SetStatusCondition(conditions, c)
	}
}

// ReasonOf is the reason of one of the conditions; empty, where it isn't there.
func ReasonOf(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}
