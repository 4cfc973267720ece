// Package spec reads an ElasticService's spec and status where a field is left out, doesn't fit
// the target or Service, or can be written in more than one way. It only reads these objects.
package spec

import (
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

// Settings are what decisions go by of an ElasticService's spec and status.
type Settings struct {
	// Handoff is the spec's handoff. A deleted object has Direct, because its Service is to work
	// without a resolver.
	Handoff v1alpha1.Handoff
	// SleepAfter is how long the service is idle before it sleeps; 0 is never.
	SleepAfter time.Duration
	// HasTriggers reports whether it has idle triggers.
	HasTriggers bool
	// HasPlayers reports whether the target's Servers report who plays, and the spec uses that.
	HasPlayers bool
	// Awake reports whether it has a server that was up, by its phase.
	Awake bool
	// PhaseSince is since when it has been in its phase, LastWake is when it was woken last, and
	// IdleSince is since when it has been idle; zero where the status doesn't have it.
	PhaseSince, LastWake, IdleSince time.Time
}

// Of are an ElasticService's settings.
func Of(es *v1alpha1.ElasticService) Settings {
	s := Settings{
		Handoff: es.Spec.Handoff, SleepAfter: 10 * time.Minute,
		Awake: es.Status.Phase == v1alpha1.PhaseAwake || es.Status.Phase == v1alpha1.PhaseFallingAsleep,
	}
	if !es.DeletionTimestamp.IsZero() {
		s.Handoff = v1alpha1.HandoffDirect
	}
	if after := es.Spec.SleepAfter; after != nil {
		s.SleepAfter = after.Duration
	}
	if idle := es.Spec.Idle; idle != nil {
		s.HasTriggers = len(idle.Triggers) > 0
		s.HasPlayers = idle.Players && target.Of(es).HasServers()
	}
	if since := es.Status.PhaseSince; since != nil {
		s.PhaseSince = since.Time
	}
	if woken := es.Status.LastWakeTime; woken != nil {
		s.LastWake = woken.Time
	}
	if since := es.Status.IdleSince; since != nil {
		s.IdleSince = since.Time
	}
	return s
}

// Owner names a target that consists of Servers, in the form of package report.
func Owner(es *v1alpha1.ElasticService) string {
	return es.Spec.ScaleTargetRef.Kind + "/" + es.Spec.ScaleTargetRef.Name
}
