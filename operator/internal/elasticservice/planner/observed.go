package planner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/autoscaler"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/elasticservice/wakegroup"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/playerlist"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/trigger"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// Observed is everything that one pass saw before it decided anything. It never changes after
// that: what is found out later is in Findings.
type Observed struct {
	// Is are the ElasticService's settings.
	Is spec.Settings
	// Service is the user's Service; nil when there is none.
	Service *corev1.Service
	// NamespaceEnding reports whether the namespace is being deleted.
	NamespaceEnding bool
	// Clash is another user of the number of a UDP port of the Service; nil: none.
	Clash *udpports.Clash
	// Older is the name of an older ElasticService of the same Service.
	Older string
	// TargetTaken is the name of an older ElasticService of the same target.
	TargetTaken string
	// Front is the Service that it shares with others, where the spec asks for that.
	Front front.Observed
	// Private is the private Service; nil when there is none. PrivateName is its name all the same.
	Private     *corev1.Service
	PrivateName string
	// Scale is the target's.
	Scale Scale
	// Sources are the private Service's slices as Kubernetes writes them.
	Sources []discoveryv1.EndpointSlice
	// Servers are the pods in those slices, and Up is how many of them take new clients.
	Servers []endpoints.Server
	Up      int
	// Pods is what is known of the target's pods beyond their endpoints.
	Pods endpoints.Pods
	// Unsettled are the pods that may be ended at any moment.
	Unsettled Unsettled
	// Strangers are the names of pods that the selector matches and that aren't the target's.
	// StrangersNext is when to look for them again; 0 for never.
	Strangers     []string
	StrangersNext time.Duration
	// Slices are those that Dormouse wrote for the Service.
	Slices []discoveryv1.EndpointSlice
	// Leftovers are other slices of the Service that lead past the resolver.
	Leftovers Leftovers
	// Blocked is why a service that could sleep may not; nil: it may.
	Blocked *obstacle.Obstacle
	// Resolvers are the resolver pods.
	Resolvers []endpoints.Resolver
	// Triggers is the last reading of the idle triggers.
	Triggers trigger.Reading
	// Lists are the players who may wake the service, or may not, according to the lists in the
	// spec.
	Lists playerlist.Lists
	// Players are the target's Servers' players, where the spec asks for them.
	Players idleness.Players
	// KeptAwake is the GameAutoscaler that keeps the target awake, if one does. What else does is
	// in the plan.
	KeptAwake idleness.KeptAwake
	// Allocated is how Allocations use the target's Servers.
	Allocated book.Use
	// Group are the ElasticServices that are woken with this one, and those that wake it; nil: there
	// are none.
	Group *wakegroup.Seen
	// Autoscaler is what sets the target's replicas while the service is awake.
	Autoscaler autoscaler.Seen
	// SleepBegun is status.lastWakeTime as it was when this process wrote FallingAsleep; nil
	// when it did not. Another value now means that a client came, whatever the replicas'
	// clocks are.
	SleepBegun *time.Time
	// UpSince is since when a server has been up; zero when none is.
	UpSince time.Time
	// NoneUpSince is since when no server has been up; zero when one is. NoneLastingSince is
	// since when none has been up for long.
	NoneUpSince, NoneLastingSince time.Time
	// UnblockedAt is when all clients began to be seen, after some were not; zero where they always
	// were.
	UnblockedAt time.Time
	// LastActive is when a resolver, which may be gone by now, last had a client.
	LastActive time.Time
	// Nobody reports whether the last look found that no client can be on any of the target's
	// pods.
	Nobody bool
}

// Findings are what a pass finds out after it has observed, while it prepares and applies
// its plan.
type Findings struct {
	// Obstacle is what stops the pass; nil: nothing does.
	Obstacle *obstacle.Obstacle
	// NeverStarted is set where an obstacle has been there from the start: nobody relies on
	// Dormouse yet.
	NeverStarted bool
	// Former is set where a former target is still asleep, which only this status knows.
	Former bool
	// Flaw is a part of the spec, or of what is around it, that can't be followed while all
	// else can; nil: none.
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

// WithReports is o with the replicas' latest reports, and since when nobody has played
// according to them.
func (o Observed) WithReports(reports idleness.Reports, idleSince time.Time) Observed {
	o.Players.Reports, o.Players.IdleSince = reports, idleSince
	return o
}

// AtZero is o for a target that is about to be scaled to zero with these pods.
func (o Observed) AtZero(pods Unsettled) Observed {
	o.Scale.Replicas, o.Unsettled = 0, pods
	return o
}

// Scale is the target's scale, or why it is not known.
type Scale struct {
	Err      error
	Replicas int32
	// LosesDisks, Selector and Readiness are as in target.Workload.
	LosesDisks bool
	Selector   string
	Readiness  v1alpha1.PodReadiness
}

// Leftovers are the slices of a Service without a selector that lead past the resolver.
type Leftovers struct {
	// Slices are the slices that nobody writes any more.
	Slices []discoveryv1.EndpointSlice
	// Mirrored is set where there are others, which are copied from Endpoints.
	Mirrored bool
	// Next is when to look again; zero when there is no need.
	Next time.Time
}
