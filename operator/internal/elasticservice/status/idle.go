package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/text"
)

// triggersHealthy is the condition whether the idle triggers can be read.
func triggersHealthy(es *v1alpha1.ElasticService, o planner.Observed) metav1.Condition {
	const kind = conditions.TriggersHealthy
	switch {
	case !spec.Of(es).HasTriggers:
		return condition.True(kind, reasons.NotNeeded, "The spec has no triggers.")
	case o.Triggers.Err != nil:
		return condition.False(kind, reasons.TriggerUnreadable, "A trigger can't be read, so the service stays awake: %v.", o.Triggers.Err)
	case o.Triggers.At.IsZero():
		return condition.Unknown(kind, reasons.NotObserved, "Triggers are asked while a server is up.")
	default:
		return condition.True(kind, reasons.OK, "Every trigger was read.")
	}
}

// playersKnown is the condition whether every Server reports who plays.
func playersKnown(es *v1alpha1.ElasticService, o planner.Observed) metav1.Condition {
	const kind = conditions.PlayersKnown
	p := o.Players.Reports
	switch {
	case !spec.Of(es).HasPlayers:
		return condition.True(kind, reasons.NotNeeded, "The spec doesn't ask for players.")
	case p.Asked.IsZero():
		return condition.Unknown(kind, reasons.NotObserved, "The Servers' reports are looked for once nothing else keeps the service awake.")
	case p.Err != nil:
		return condition.False(kind, reasons.ReplicaSilent, "Who plays is not known, so the service stays awake: %v.", p.Err)
	case len(p.Silent) > 0:
		return condition.False(kind, reasons.ServersSilent,
			"A game runs and nothing was reported of it lately, so the service stays awake: %s. Look at the log of the container %s of each.",
			text.Some(p.Silent), wellknown.SidecarContainer)
	default:
		return condition.True(kind, reasons.OK, "Every Server reports its players.")
	}
}

// idleSignal is the condition whether there is a signal that the service is idle.
func idleSignal(es *v1alpha1.ElasticService, blocked *obstacle.Obstacle) metav1.Condition {
	const kind = conditions.IdleSignal
	is := spec.Of(es)
	switch {
	case blocked != nil:
		return condition.False(kind, blocked.Reason, "The resolver doesn't see all clients, so the service stays awake.")
	case is.SleepAfter == 0:
		return condition.True(kind, reasons.NotNeeded, "sleepAfter is 0s, so the service never sleeps by itself.")
	case es.Spec.Handoff == v1alpha1.HandoffNever, is.HasTriggers, is.HasPlayers:
		return condition.True(kind, reasons.OK, "Dormouse can tell whether the service is idle.")
	default:
		return condition.False(kind, reasons.NoIdleSignal,
			"With handoff Direct the resolver doesn't see the clients of an awake service, so it never sleeps by itself: add spec.idle.triggers, or spec.idle.players for a Server, a Fleet or a GameType, or set handoff: Never while nobody uses it.")
	}
}
