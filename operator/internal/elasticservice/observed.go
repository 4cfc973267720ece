package elasticservice

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/trigger"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// observed is everything that one pass saw. The planner decides by it alone.
type observed struct {
	// service is the user's Service; nil when there is none.
	service *corev1.Service
	// namespaceEnding says that the namespace is being deleted.
	namespaceEnding bool
	// neverStarted says that an obstacle has been there from the first: nobody
	// counts on Dormouse.
	neverStarted bool
	// flaw is what of the spec, or around it, can't be followed while all else can; nil:
	// nothing.
	flaw *obstacle
	// clash is what else has the number of a UDP port of the Service; nil: nothing.
	clash *udpports.Clash
	// older is the name of an older ElasticService of the same Service.
	older string
	// targetTaken is the name of an older ElasticService of the same target.
	targetTaken string
	// front is the Service that it shares with others, where the spec asks for that.
	front observedFront
	// private is the private Service; nil when there is none.
	private *corev1.Service
	// scale is the target's.
	scale scaleView
	// sources are the private Service's slices as Kubernetes writes them.
	sources []discoveryv1.EndpointSlice
	// servers are the pods in them.
	servers []server
	// draining are the target's Servers that take nobody any more, by name, which
	// is their pods' name, too.
	draining map[string]bool
	// unsettled are those that may be ended at any moment.
	unsettled unsettled
	// full are those that have as many players as they may have.
	full map[string]bool
	// strangers are the names of pods that the selector matches and that aren't the
	// target's, and strangersNext is when to look for them again; 0 for never.
	strangers     []string
	strangersNext time.Duration
	// slices are the ones that Dormouse wrote for the Service.
	slices []discoveryv1.EndpointSlice
	// leftovers are others of the Service that lead past the resolver.
	leftovers leftovers
	// resolvers are the resolver pods.
	resolvers []resolver
	// triggers is the last reading of the idle triggers.
	triggers trigger.Reading
	// lists are the players who may wake the service, or may not, by the lists that the
	// spec names.
	lists observedLists
	// players is who plays on the target's Servers, where the spec asks for it.
	players observedPlayers
	// sleepBegun holds status.lastWakeTime as it was when this process wrote
	// FallingAsleep; nil when it did not. Another value now means that a client
	// came, whatever the clocks of the replicas say.
	sleepBegun *time.Time
	// upSince is since when a server has been up; zero when none is.
	upSince time.Time
	// noneUpSince is since when no server has been up; zero when one is. noneLastingSince
	// is since when none has been for long.
	noneUpSince, noneLastingSince time.Time
	// unblockedAt is when the resolvers began to see all clients; zero where they always
	// did.
	unblockedAt time.Time
	// former says that a former target is asleep still, which nobody else knows of.
	former bool
	// nobody says that by the last look nobody can be on any of the target's pods.
	nobody bool
	// cause is why no server takes clients; nil when it isn't known or one does.
	cause *diagnosis.Finding
}

// observedPlayers is who plays, as far as it is known.
type observedPlayers struct {
	games []game
	// busy is the name of a Server on which somebody plays by its status; empty
	// when there is none.
	busy string
	// idleSince is since when nobody has played, as far as this process knows.
	idleSince time.Time
	// reports is what the replicas said when they were last asked.
	reports playerReports
}

// playerReports is what the replicas of the operator said together.
type playerReports struct {
	// asked is when they were; zero when they weren't.
	asked time.Time
	// err says why it isn't known what they know.
	err error
	// busy is a Server on which somebody plays.
	busy string
	// silent are Servers that should have reported and didn't. young are those
	// whose game has only just been started.
	silent, young []string
}

// quiet says that every Server said that nobody plays.
func (p playerReports) quiet() bool {
	return !p.asked.IsZero() && p.err == nil && p.busy == "" && len(p.silent) == 0 && len(p.young) == 0
}

// scaleView is the target's scale or why it is not known.
type scaleView struct {
	err       error
	replicas  int32
	selector  string
	readiness v1alpha1.PodReadiness
}

// server is one pod of the target.
type server struct {
	uid     string
	address string
	// serving is the pod's readiness.
	serving bool
	// terminating says that the pod is being deleted.
	terminating bool
	// draining says that the pod takes nobody any more, which its readiness tells some
	// seconds later, or not at all: its Server drains, or the target has just been at
	// zero.
	draining bool
	// full says that it has as many players as it may have.
	full bool
}

// up says that the server takes new clients.
func (s server) up() bool { return s.serving && !s.terminating && !s.draining }

// resolver is one resolver pod and what it said of one ElasticService.
type resolver struct {
	uid       string
	podName   string
	namespace string
	node      string
	addresses []string
	// ready says that the pod is ready and not being deleted.
	ready bool
	// firstAsked is when this process first asked the pod.
	firstAsked time.Time
	// reachable says that the pod answered.
	reachable bool
	// silentSince is since when it has not.
	silentSince time.Time
	// err says why.
	err error
	// phase is the phase of the ElasticService that the pod knows.
	phase string
	// listening holds the resolver ports on which it takes clients.
	listening map[int32]bool
	// portErrors says why it does not take clients on others.
	portErrors []string
	sessions   int32
	queued     int32
	// lastActive is when it last had a client; zero when it never had.
	lastActive time.Time
	// started is when it began to take clients.
	started time.Time
	// steppedDown is since when its endpoint has been terminating, as far as this
	// process knows; zero when it isn't.
	steppedDown time.Time
}

// listensOn says whether the pod takes clients on every port.
func (r resolver) listensOn(ports []v1alpha1.PortStatus) bool {
	for _, p := range ports {
		if !r.listening[p.ResolverPort] {
			return false
		}
	}
	return len(ports) > 0
}

func countUp(servers []server) int {
	n := 0
	for _, s := range servers {
		if s.up() {
			n++
		}
	}
	return n
}

// allFull says that each server that is up has no room for another player.
func allFull(servers []server) bool {
	return !slices.ContainsFunc(servers, func(s server) bool { return s.up() && !s.full })
}

// serversOf reads the pods out of the private Service's slices, each pod once
// though it may stand in a slice of each address family.
func serversOf(all []discoveryv1.EndpointSlice, o *observed) []server {
	var servers []server
	seen := map[string]bool{}
	for _, slice := range all {
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			s := server{
				uid:         uidOf(&e),
				address:     e.Addresses[0],
				serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
				terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
				draining:    o.takesNobody(&e),
				full:        e.TargetRef != nil && o.full[e.TargetRef.Name],
			}
			if !seen[s.uid] {
				seen[s.uid] = true
				servers = append(servers, s)
			}
		}
	}
	return servers
}

// uidOf tells the pod of an endpoint apart from others.
func uidOf(e *discoveryv1.Endpoint) string {
	if e.TargetRef == nil {
		return e.Addresses[0]
	}
	return string(e.TargetRef.UID)
}
