package planner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/playerlist"
	"dormouse.dev/dormouse/operator/internal/trigger"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// Observed is everything that one pass saw before it decided anything. Nothing of it is
// changed from then on: what is found out later is in Findings.
type Observed struct {
	// Service is the user's Service; nil when there is none.
	Service *corev1.Service
	// NamespaceEnding says that the namespace is being deleted.
	NamespaceEnding bool
	// Clash is what else has the number of a UDP port of the Service; nil: nothing.
	Clash *udpports.Clash
	// Older is the name of an older ElasticService of the same Service.
	Older string
	// TargetTaken is the name of an older ElasticService of the same target.
	TargetTaken string
	// Front is the Service that it shares with others, where the spec asks for that.
	Front front.Observed
	// Private is the private Service; nil when there is none.
	Private *corev1.Service
	// Scale is the target's.
	Scale Scale
	// Sources are the private Service's slices as Kubernetes writes them.
	Sources []discoveryv1.EndpointSlice
	// Servers are the pods in them.
	Servers []endpoints.Server
	// Draining are the target's Servers that take nobody any more, by name, which
	// is their pods' name, too.
	Draining map[string]bool
	// Unsettled are those that may be ended at any moment.
	Unsettled Unsettled
	// Full are those that have as many players as they may have.
	Full map[string]bool
	// Strangers are the names of pods that the selector matches and that aren't the
	// target's, and StrangersNext is when to look for them again; 0 for never.
	Strangers     []string
	StrangersNext time.Duration
	// Slices are the ones that Dormouse wrote for the Service.
	Slices []discoveryv1.EndpointSlice
	// Leftovers are others of the Service that lead past the resolver.
	Leftovers Leftovers
	// Resolvers are the resolver pods.
	Resolvers []endpoints.Resolver
	// Triggers is the last reading of the idle triggers.
	Triggers trigger.Reading
	// Lists are the players who may wake the service, or may not, by the lists that the
	// spec names.
	Lists playerlist.Lists
	// Players is who plays on the target's Servers, where the spec asks for it.
	Players idleness.Players
	// SleepBegun holds status.lastWakeTime as it was when this process wrote
	// FallingAsleep; nil when it did not. Another value now means that a client
	// came, whatever the clocks of the replicas say.
	SleepBegun *time.Time
	// UpSince is since when a server has been up; zero when none is.
	UpSince time.Time
	// NoneUpSince is since when no server has been up; zero when one is. NoneLastingSince
	// is since when none has been for long.
	NoneUpSince, NoneLastingSince time.Time
	// UnblockedAt is when the resolvers began to see all clients; zero where they always
	// did.
	UnblockedAt time.Time
	// Nobody says that by the last look nobody can be on any of the target's pods.
	Nobody bool
}

// Findings are what a pass finds out after it has observed, while it prepares and applies
// its plan.
type Findings struct {
	// Obstacle is what stops the pass; nil: nothing does.
	Obstacle *obstacle.Obstacle
	// NeverStarted is whether an obstacle has been there from the first: nobody counts on
	// Dormouse.
	NeverStarted bool
	// Former is whether a former target is asleep still, which nobody else knows of.
	Former bool
	// Flaw is what of the spec, or around it, can't be followed while all else can; nil:
	// nothing.
	Flaw *obstacle.Obstacle
	// Front is why not all hosts of the front lead here; nil when they do.
	Front *obstacle.Obstacle
	// Cause is why no server takes clients; nil when it isn't known or one does.
	Cause *diagnosis.Finding
}

// Note notes a flaw, unless there is one.
func (f *Findings) Note(flaw *obstacle.Obstacle) {
	if f.Flaw == nil {
		f.Flaw = flaw
	}
}

// WithReports is what was observed, with what the replicas said when they were asked once
// more, and since when nobody has played by that.
func (o Observed) WithReports(reports idleness.Reports, idleSince time.Time) Observed {
	o.Players.Reports, o.Players.IdleSince = reports, idleSince
	return o
}

// AtZero is what was observed, of a target that is about to be scaled to zero with these
// pods.
func (o Observed) AtZero(pods Unsettled) Observed {
	o.Scale.Replicas, o.Unsettled = 0, pods
	return o
}

// Scale is the target's scale or why it is not known.
type Scale struct {
	Err       error
	Replicas  int32
	Selector  string
	Readiness v1alpha1.PodReadiness
}

// Pods is what is known of the target's pods beyond what their endpoints say.
func (o *Observed) Pods() endpoints.Pods {
	return endpoints.Pods{Draining: o.Draining, Full: o.Full, Unsettled: o.Unsettled.UIDs}
}

// Leftovers are the slices of a Service without a selector that lead past the resolver.
type Leftovers struct {
	// Slices are those that nobody writes any more.
	Slices []discoveryv1.EndpointSlice
	// Mirrored says that there are others, which are copied from Endpoints.
	Mirrored bool
	// Next is when to look again; zero when there is no need.
	Next time.Time
}
