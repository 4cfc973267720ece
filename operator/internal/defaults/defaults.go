// Package defaults knows what a Server's spec means where it says nothing. The API server doesn't fill that
// in: it would be stored with each Server, and those of a Fleet would say it thousands of times.
//
// Earlier versions had the API server fill it in. So what is compared, or hashed, is filled in first: an
// object that says the defaults and one that doesn't are equal.
package defaults

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Health is when a game is taken for broken whose Server says nothing of it.
const (
	initialDelay     = 30 * time.Second
	period           = 5 * time.Second
	failureThreshold = 3
)

// Filled is a spec that says what it means. The spec itself stays as it is.
func Filled(s v1alpha1.ServerSpec) v1alpha1.ServerSpec {
	s.Readiness = cmp.Or(s.Readiness, v1alpha1.ServerReadinessAuto)
	s.Health.InitialDelay = cmp.Or(s.Health.InitialDelay, &metav1.Duration{Duration: initialDelay})
	s.Health.Period = cmp.Or(s.Health.Period, &metav1.Duration{Duration: period})
	s.Health.FailureThreshold = cmp.Or(s.Health.FailureThreshold, failureThreshold)
	s.Deletion.Unreported = cmp.Or(s.Deletion.Unreported, v1alpha1.DeletionAllowed)
	s.Deletion.Timeout = cmp.Or(s.Deletion.Timeout, &metav1.Duration{})
	s.Running = cmp.Or(s.Running, new(true))
	s.Ports = slices.Clone(s.Ports)
	for i := range s.Ports {
		s.Ports[i].Expose = cmp.Or(s.Ports[i].Expose, v1alpha1.ExposeNone)
	}
	return s
}
