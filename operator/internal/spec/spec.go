// Package spec reads an ElasticService's spec and status where a field is left out, doesn't fit
// the target or Service, or can be written in more than one way. It only reads these objects.
package spec

import (
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/times"
)

// Handoff is the spec's handoff. A deleted object has Direct, because its Service is to work
// without a resolver.
func Handoff(es *v1alpha1.ElasticService) v1alpha1.Handoff {
	if !es.DeletionTimestamp.IsZero() {
		return v1alpha1.HandoffDirect
	}
	return es.Spec.Handoff
}

// HasTriggers reports whether the service has idle triggers.
func HasTriggers(es *v1alpha1.ElasticService) bool {
	return es.Spec.Idle != nil && len(es.Spec.Idle.Triggers) > 0
}

// SleepAfter is how long a service is idle before it sleeps; 0 is never.
func SleepAfter(es *v1alpha1.ElasticService) time.Duration {
	if es.Spec.SleepAfter == nil {
		return 10 * time.Minute
	}
	return es.Spec.SleepAfter.Duration
}

// PhaseSince is since when a service has been in its phase; zero where it has none.
func PhaseSince(es *v1alpha1.ElasticService) time.Time { return times.Micro(es.Status.PhaseSince) }

// KeptSince is since when a service has been idle by its status; zero where the status doesn't
// have it.
func KeptSince(es *v1alpha1.ElasticService) time.Time {
	if es.Status.IdleSince == nil {
		return time.Time{}
	}
	return es.Status.IdleSince.Time
}

// IsAwake reports whether a service in a phase has a server that was up.
func IsAwake(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseAwake || p == v1alpha1.PhaseFallingAsleep
}

// Owner names a target that consists of Servers, in the form of package report.
func Owner(es *v1alpha1.ElasticService) string {
	return es.Spec.ScaleTargetRef.Kind + "/" + es.Spec.ScaleTargetRef.Name
}

// HasPlayers reports whether the target's Servers report who plays, and the spec uses that.
func HasPlayers(es *v1alpha1.ElasticService) bool {
	return es.Spec.Idle != nil && es.Spec.Idle.Players && target.Of(es).HasServers()
}
