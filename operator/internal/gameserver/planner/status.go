package planner

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/internal/podstatus"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/gameserver/slowstart"
	"dormouse.dev/dormouse/operator/internal/hostports"
	"dormouse.dev/dormouse/operator/internal/text"
)

// finding is a Server's state, and why.
type finding struct {
	state           v1alpha1.ServerState
	reason, message string
	// ready is set where the game takes players.
	ready bool
}

// SetStatus writes what was observed and what the pass does into a Server's status; portTrouble is why
// no host ports could be picked for a Pod that was to be made, nil: nothing.
func SetStatus(now time.Time, s *v1alpha1.Server, o Observed, p Plan, portTrouble error) {
	st := &s.Status
	st.ObservedGeneration = s.Generation
	stamp := metav1.NewTime(now)
	// That a game isn't ready any more is often seen before its end.
	if c := meta.FindStatusCondition(st.Conditions, conditions.Ready); c != nil && c.Status == metav1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) >= wellAfter {
		st.Failures = 0
	}
	// The cache may go on showing a Pod that failed after it was deleted.
	if p.Failed && (st.LastFailureTime == nil || st.LastFailureTime.Before(&o.Pod.CreationTimestamp)) {
		st.Failures, st.LastFailureTime = min(st.Failures, mostFailures)+1, &stamp
	}
	f := find(now, s, o, p, portTrouble)
	st.State = f.state
	st.Allocated = o.held(gamepod.Report(s, o.Pod))
	setPod(s, o)
	if gamepod.Report(s, o.Pod) == nil {
		clearGame(s, p.guard.empty)
	}

	ready := condition.False(conditions.Ready, f.reason, "%s", f.message)
	if f.ready {
		ready = condition.True(conditions.Ready, reasons.OK, "%s", f.message)
	}
	deletable := condition.False(conditions.DeletionAllowed, p.guard.reason, "%s", p.guard.message)
	if p.guard.allowed {
		deletable = condition.True(conditions.DeletionAllowed, p.guard.reason, "%s", p.guard.message)
	}
	list := []metav1.Condition{ready, deletable, healthy(s, o)}
	if !InFleet(s) {
		list = append(list, updated(s, o))
	}
	setConditions(s, stamp, list...)
}

// setPod writes the Pod, its node and its ports.
func setPod(s *v1alpha1.Server, o Observed) {
	st := &s.Status
	st.PodName, st.PodIP, st.NodeName, st.Address, st.Addresses, st.Ports, st.Replicas = "", "", "", "", nil, nil, 0
	if !InFleet(s) {
		st.Selector = wellknown.ServerLabel + "=" + s.Name
	}
	if o.Pod == nil {
		return
	}
	st.Replicas = 1
	st.PodName = o.Pod.Name
	st.PodIP = o.Pod.Status.PodIP
	st.NodeName = o.Pod.Spec.NodeName
	switch {
	case !slices.ContainsFunc(s.Spec.Ports, hostports.Exposed):
		for _, ip := range o.Pod.Status.PodIPs {
			st.Addresses = append(st.Addresses, corev1.NodeAddress{Type: podAddress, Address: ip.IP})
		}
		st.Address = st.PodIP
	case o.Node != nil:
		st.Address = addressOf(o.Node)
		st.Addresses = addressesOf(o.Node, st.Address)
	}
	st.Ports = hostports.Status(s, o.Pod)
}

// clearGame clears the reports about a Server's former Pod.
func clearGame(s *v1alpha1.Server, deletable bool) {
	st := &s.Status
	st.Game, st.DeletionAllowed = nil, deletable
	var capacity int32
	if s.Spec.Players != nil {
		capacity = s.Spec.Players.Capacity
	}
	st.Players = nil
	if s.Spec.Players != nil {
		st.Players = &v1alpha1.PlayersStatus{Capacity: capacity}
	}
}

// find finds a Server's state, and why.
func find(now time.Time, s *v1alpha1.Server, o Observed, p Plan, portTrouble error) finding {
	game := gamepod.Report(s, o.Pod)
	silent, isSilent := o.silentSince()
	lost, _ := o.nodeLost(now)
	why, _ := unschedulable(orEmpty(o.Pod))
	switch {
	case o.Stranger:
		return finding{state: v1alpha1.ServerPending, reason: reasons.PodExists, message: PodExists(s)}
	case !Wanted(s), restarts(o.Pod) && !Ended(o.Pod):
		return findEnding(s, o, p)
	case o.Pod == nil:
		return findMissing(s, p, portTrouble)
	case o.Pod.DeletionTimestamp != nil && !Ended(o.Pod) && !lost:
		return finding{state: v1alpha1.ServerStarting, reason: reasons.PodDeleted, message: "The Pod was deleted; another one follows when it is gone."}
	case hostports.Awaited(why):
		return finding{
			state: v1alpha1.ServerPending, reason: reasons.HostPortTaken,
			message: "The Server waits for a free host port: " + text.Excerpt(why),
		}
	case !scheduled(o.Pod):
		if why != "" {
			why = "No node can take the Pod: " + text.Excerpt(why)
		} else {
			why = "The Pod waits for a node."
		}
		return finding{state: v1alpha1.ServerPending, reason: reasons.Pending, message: why}
	case lost:
		return finding{
			state: v1alpha1.ServerUnhealthy, reason: reasons.NodeLost,
			message: fmt.Sprintf("Node %s doesn't answer%s.", o.Pod.Spec.NodeName, since(silent)),
		}
	case game != nil && game.State == v1alpha1.GameUnhealthy:
		return finding{state: v1alpha1.ServerUnhealthy, reason: reasons.Unhealthy, message: sentenceOr(game.Message, "The game doesn't answer any more.")}
	}
	allocatedState := v1alpha1.ServerAllocated
	if game != nil && game.State == v1alpha1.GameReserved {
		allocatedState = v1alpha1.ServerReserved
	}
	takesPlayers := game != nil && game.State != v1alpha1.GameStarting && GameRunning(s, o.Pod)
	allocated := takesPlayers && (game.State == v1alpha1.GameAllocated || game.State == v1alpha1.GameReserved || o.held(game))
	f := finding{state: v1alpha1.ServerStarting, reason: reasons.Starting}
	switch {
	case s.Spec.Drain:
		f.state, f.reason = v1alpha1.ServerDraining, reasons.Draining
		f.message = "The game gets no new players, and goes when it may: " + text.LowerFirst(p.guard.message)
		return f
	case isSilent:
		f.reason = reasons.NodeSilent
		f.message = fmt.Sprintf("Node %s doesn't answer%s.", o.Pod.Spec.NodeName, since(silent))
		if allocated {
			f.state = allocatedState
		}
		return f
	case takesPlayers && (podstatus.Ready(o.Pod) || noRoom(s) && gamepod.Ready(s, o.Pod)):
		f.state, f.ready, f.message = v1alpha1.ServerReady, true, "The game takes players."
		if noRoom(s) {
			f.message = "The game has as many players as it may."
		}
		if allocated {
			f.state = allocatedState
		}
		return f
	case allocated:
		f.state = allocatedState
	}
	f.reason, f.message = explain(now, s, o)
	return f
}

// noRoom reports whether as many play as may. The sidecar of a Server whose GameType skips full
// ones then reports its Pod as not ready, so that nobody else is sent there.
func noRoom(s *v1alpha1.Server) bool {
	p := s.Status.Players
	return p != nil && p.Capacity > 0 && p.Current >= p.Capacity
}

// findEnding finds the state of a Server that is to have no Pod.
func findEnding(s *v1alpha1.Server, o Observed, p Plan) finding {
	what := "deleted"
	switch {
	case Wanted(s):
		what = "restarted with its changed spec"
	case s.DeletionTimestamp.IsZero():
		what = "stopped"
	}
	switch {
	case o.Pod == nil && s.DeletionTimestamp.IsZero():
		return finding{state: v1alpha1.ServerStopped, reason: reasons.Stopped, message: whyStopped(s)}
	case p.guard.allowed:
		return finding{state: v1alpha1.ServerDraining, reason: reasons.Draining, message: "The Server is being " + what + "."}
	}
	return finding{
		state: v1alpha1.ServerDraining, reason: reasons.Draining,
		message: fmt.Sprintf("The Server is to be %s, and its game can't go yet: %s", what, text.LowerFirst(p.guard.message)),
	}
}

// whyStopped is why a Server that isn't being deleted has no Pod.
func whyStopped(s *v1alpha1.Server) string {
	if s.Spec.Running != nil && !*s.Spec.Running {
		return "The Server was told to stop: spec.running is false."
	}
	return "The Server sleeps or was scaled down: spec.replicas is 0."
}

// findMissing finds the state of a Server that has no Pod and wants one.
func findMissing(s *v1alpha1.Server, p Plan, portTrouble error) finding {
	f := finding{state: v1alpha1.ServerPending, reason: reasons.Pending, message: "The Pod is made."}
	switch {
	case portTrouble != nil:
		f.reason, f.message = reasons.HostPortTaken, text.UpperFirst(portTrouble.Error())+"."
	case p.waits > 0:
		// With the time left in it the status would be written each second.
		f.reason = reasons.Backoff
		f.message = fmt.Sprintf("The last %d Pods of this Server ended early; the next one comes %s after the last.",
			s.Status.Failures, delayAfter(s.Status.Failures))
	}
	return f
}

// explain explains why a Pod that has a node isn't ready.
func explain(now time.Time, s *v1alpha1.Server, o Observed) (reason, message string) {
	found := diagnosis.Explain(now, diagnosis.Input{
		Target: diagnosis.Target{Kind: "Server", Name: s.Name, UID: s.UID},
		Pods:   []corev1.Pod{*o.Pod}, Since: o.Pod.CreationTimestamp.Time, Events: o.Events,
	})
	if found.Wrong && found.Reason != reasons.ServerNotReady {
		return found.Reason, found.Sentence
	}
	if awaited, slow := slowstart.Awaited(now, s, o.Pod, o.UsualBoot); slow {
		return reasons.SlowStart, awaited
	}
	if found.Wrong {
		return reasons.Starting, found.Sentence
	}
	if GameRunning(s, o.Pod) && podstatus.Ready(o.Pod) {
		return reasons.Starting, "The game's sidecar hasn't reported yet."
	}
	return reasons.Starting, "The game starts."
}

// healthy is the condition Healthy.
func healthy(s *v1alpha1.Server, o Observed) metav1.Condition {
	switch game := gamepod.Report(s, o.Pod); {
	case !GameRunning(s, o.Pod):
		return condition.Unknown(conditions.Healthy, reasons.NotRunning, "No game runs.")
	case game != nil && game.State == v1alpha1.GameUnhealthy:
		return condition.False(conditions.Healthy, reasons.Unhealthy, "%s", sentenceOr(game.Message, "The game doesn't answer any more."))
	default:
		// What an earlier version said, in more bytes, stays, so that an upgrade writes no status.
		message := "It is well."
		if was := meta.FindStatusCondition(s.Status.Conditions, conditions.Healthy); was != nil && was.Status == metav1.ConditionTrue {
			message = was.Message
		}
		return condition.True(conditions.Healthy, reasons.OK, "%s", message)
	}
}

// addressOf is the address at which a node's host ports are reached.
func addressOf(node *corev1.Node) string {
	address := ""
	for _, a := range node.Status.Addresses {
		switch {
		case a.Type == corev1.NodeExternalIP:
			return a.Address
		case a.Type == corev1.NodeInternalIP && address == "":
			address = a.Address
		}
	}
	return address
}

// podAddress is the type of a Pod's own address.
const podAddress corev1.NodeAddressType = "PodIP"

// addressesOf are a node's addresses and names, one of them first.
func addressesOf(node *corev1.Node, first string) []corev1.NodeAddress {
	all := slices.Clone(node.Status.Addresses)
	slices.SortStableFunc(all, func(a, b corev1.NodeAddress) int {
		switch first {
		case a.Address:
			return -1
		case b.Address:
			return 1
		}
		return 0
	})
	return all
}

// SetRefused notes why the Server's Pod can't be made.
func SetRefused(now time.Time, s *v1alpha1.Server, reason, message string) {
	s.Status.State = v1alpha1.ServerPending
	setConditions(s, metav1.NewTime(now), condition.False(conditions.Ready, reason, "%s", message))
}

// setConditions sets conditions of the generation that the status itself says it is of: said again in each,
// that was a fiftieth of a Server. Where an earlier version said it, it stays as long as it is
// true, so that an upgrade writes no status.
func setConditions(s *v1alpha1.Server, now metav1.Time, set ...metav1.Condition) {
	for _, c := range set {
		var generation int64
		if was := meta.FindStatusCondition(s.Status.Conditions, c.Type); was != nil && was.ObservedGeneration == s.Generation {
			generation = s.Generation
		}
		condition.SetAll(&s.Status.Conditions, generation, now, c)
	}
}

// PodExists is the message that goes with reasons.PodExists.
func PodExists(s *v1alpha1.Server) string {
	return fmt.Sprintf("There is a Pod named %s that isn't this Server's: delete or rename it.", s.Name)
}

func since(t time.Time) string {
	if t.Unix() <= 0 {
		return ", because it isn't there any more"
	}
	return " since " + t.UTC().Format(time.RFC3339)
}

func sentenceOr(words, otherwise string) string {
	if words == "" {
		return otherwise
	}
	return text.Excerpt(words)
}
