// Package times compares times of which some aren't known, which is the zero time.
package times

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Latest is the last of some times; the zero time where there are none.
func Latest(times ...time.Time) time.Time {
	var l time.Time
	for _, t := range times {
		if t.After(l) {
			l = t
		}
	}
	return l
}

// Earliest is the earlier of two times that are known.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Within is t, or the end of the span that it lies beyond.
func Within(from, t, to time.Time) time.Time {
	return Latest(from, Earliest(t, to))
}

// Micro is a time of a status; zero where there is none.
func Micro(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
