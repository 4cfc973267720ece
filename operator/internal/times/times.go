// Package times compares times of which some may be unknown, which is the zero time.
package times

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Latest is the latest of some times; the zero time where there are none.
func Latest(times ...time.Time) time.Time {
	var l time.Time
	for _, t := range times {
		if t.After(l) {
			l = t
		}
	}
	return l
}

// Earliest is the earlier of the known ones of two times.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Within is t, limited to the span between from and to.
func Within(from, t, to time.Time) time.Time {
	return Latest(from, Earliest(t, to))
}

// Micro is a status's time; zero where there is none.
func Micro(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
