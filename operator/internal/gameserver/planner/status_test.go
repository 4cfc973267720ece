package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameserver/podbuilder"
)

// readyOf is a Server's condition Ready.
func readyOf(s *v1alpha1.Server) metav1.Condition {
	if c := meta.FindStatusCondition(s.Status.Conditions, conditions.Ready); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// What is told of a Server, for the same worlds.
func TestStatus(t *testing.T) {
	tests := map[string]struct {
		world     *world
		state     v1alpha1.ServerState
		reason    string
		deletable bool
	}{
		"a game that plays":                   {newWorld(players(3)), v1alpha1.ServerReady, reasons.OK, false},
		"a full game that gets nobody else":   {newWorld(full16, unready(-1)), v1alpha1.ServerReady, reasons.OK, false},
		"a full game that is broken":          {newWorld(full16, unready(-1), crashed), v1alpha1.ServerStarting, reasons.Starting, true},
		"a game with room that isn't ready":   {newWorld(players(3), unready(-1)), v1alpha1.ServerStarting, reasons.Starting, false},
		"an empty game":                       {newWorld(), v1alpha1.ServerReady, reasons.OK, true},
		"an Allocated game":                   {newWorld(func(w *world) { w.say(v1alpha1.GameAllocated, 0) }), v1alpha1.ServerAllocated, reasons.OK, false},
		"a Reserved game":                     {newWorld(func(w *world) { w.say(v1alpha1.GameReserved, 0) }), v1alpha1.ServerReserved, reasons.OK, true},
		"a game that an Allocation has":       {newWorld(held), v1alpha1.ServerAllocated, reasons.OK, false},
		"a game that Allocations share":       {newWorld(shared), v1alpha1.ServerAllocated, reasons.OK, false},
		"one that starts again":               {newWorld(held, func(w *world) { w.say(v1alpha1.GameStarting, 0) }), v1alpha1.ServerStarting, reasons.Starting, false},
		"a game that starts":                  {newWorld(func(w *world) { w.say(v1alpha1.GameStarting, 0) }), v1alpha1.ServerStarting, reasons.Starting, true},
		"a game of which nothing is known":    {newWorld(silent), v1alpha1.ServerStarting, reasons.Starting, true},
		"a game that crashed":                 {newWorld(players(3), crashed), v1alpha1.ServerStarting, reasons.Starting, true},
		"a drained game":                      {newWorld(players(3), func(w *world) { w.server.Spec.Drain = true }), v1alpha1.ServerDraining, reasons.Draining, false},
		"a deleted game with players":         {newWorld(players(3), deleted(0)), v1alpha1.ServerDraining, reasons.Draining, false},
		"a stopped Server":                    {newWorld(podGone, stopped), v1alpha1.ServerStopped, reasons.Stopped, true},
		"an unhealthy game":                   {newWorld(func(w *world) { w.say(v1alpha1.GameUnhealthy, 2) }), v1alpha1.ServerUnhealthy, reasons.Unhealthy, false},
		"a lost node":                         {newWorld(players(3), nodeSilent(-300)), v1alpha1.ServerUnhealthy, reasons.NodeLost, false},
		"a node that has just become silent":  {newWorld(players(3), nodeSilent(-60)), v1alpha1.ServerStarting, reasons.NodeSilent, false},
		"a Pod without a port":                {newWorld(silent, waitsForPort), v1alpha1.ServerPending, reasons.HostPortTaken, true},
		"a Server that waits after failures":  {newWorld(podGone, failures(3, -4)), v1alpha1.ServerPending, reasons.Backoff, true},
		"another Pod's players are not these": {newWorld(players(3), func(w *world) { w.server.Status.Game.PodUID = "earlier" }), v1alpha1.ServerStarting, reasons.Starting, true},
		"a game that must not go unreported":  {newWorld(silent, denied), v1alpha1.ServerStarting, reasons.Starting, false},
		"one whose sidecar has it otherwise from an earlier spec": {newWorld(unsaid, denied, func(w *world) {
			w.server.Status.DeletionAllowed = true
		}), v1alpha1.ServerStarting, reasons.Starting, false},
		"one that may go unreported since a moment ago": {newWorld(unsaid), v1alpha1.ServerStarting, reasons.Starting, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := test.world.server
			p := Make(noon, s, test.world.o)
			SetStatus(noon, s, test.world.o, p, test.world.portTrouble)
			ready := readyOf(s)
			if s.Status.State != test.state || ready.Reason != test.reason || p.guard.empty != test.deletable {
				t.Errorf("the state is %s, because %s (%s), deletable %t (%s); want %s, because %s, deletable %t",
					s.Status.State, ready.Reason, ready.Message, p.guard.empty, p.guard.message, test.state, test.reason, test.deletable)
			}
			for _, c := range s.Status.Conditions {
				if c.Message == "" || c.Reason == "" {
					t.Errorf("the condition %s says nothing: %+v", c.Type, c)
				}
			}
		})
	}
}

// Only an Allocation makes a Server allocated: the game's own word is in its state.
func TestWhetherAnAllocationHasAServerIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		world *world
		want  bool
	}{
		"nobody asked for it":                    {newWorld(), false},
		"its game says that it is Allocated":     {newWorld(func(w *world) { w.say(v1alpha1.GameAllocated, 0) }), false},
		"an Allocation has it":                   {newWorld(held), true},
		"Allocations share it":                   {newWorld(shared), true},
		"one has it whose game is Allocated too": {newWorld(held, func(w *world) { w.say(v1alpha1.GameAllocated, 0) }), true},
		"it is drained meanwhile":                {newWorld(held, func(w *world) { w.server.Spec.Drain = true }), true},
		"its game asks for its end":              {newWorld(held, func(w *world) { w.say(v1alpha1.GameShutdown, 0) }), false},
		"the Allocation is gone":                 {newWorld(func(w *world) { w.server.Status.Allocated = true }), false},
	} {
		SetStatus(noon, test.world.server, test.world.o, Make(noon, test.world.server, test.world.o), nil)
		if got := test.world.server.Status.Allocated; got != test.want {
			t.Errorf("%s: allocated is %t, want %t", name, got, test.want)
		}
	}
}

// Failures are forgotten once a Server was well for ten minutes.
func TestFailuresAreForgotten(t *testing.T) {
	w := newWorld(podEnded, failures(7, -3000))
	w.server.Status.Conditions = []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionTrue, LastTransitionTime: *at(-599)}}
	SetStatus(noon, w.server, w.o, Make(noon, w.server, w.o), nil)
	if w.server.Status.Failures != 8 {
		t.Errorf("after 599 s of being well there were %d failures, want 8", w.server.Status.Failures)
	}
	SetStatus(noon, w.server, w.o, Make(noon, w.server, w.o), nil)
	if w.server.Status.Failures != 8 {
		t.Errorf("a Pod that failed once was counted %d times, want 8 failures in all", w.server.Status.Failures)
	}
	w = newWorld(podEnded, failures(7, -3000))
	w.server.Status.Conditions = []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionTrue, LastTransitionTime: *at(-600)}}
	SetStatus(noon, w.server, w.o, Make(noon, w.server, w.o), nil)
	if w.server.Status.Failures != 1 {
		t.Errorf("after 600 s of being well there were %d failures, want 1", w.server.Status.Failures)
	}
}

// The kubelet says that a container isn't ready before it says that the Pod has ended.
func TestFailuresAreForgottenThoughTheEndComesInTwoSteps(t *testing.T) {
	w := newWorld(unready(0), failures(7, -3000))
	w.server.Status.Conditions = []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionTrue, LastTransitionTime: *at(-600)}}
	SetStatus(noon, w.server, w.o, Make(noon, w.server, w.o), nil)
	podEnded(w)
	SetStatus(noon, w.server, w.o, Make(noon, w.server, w.o), nil)
	if w.server.Status.Failures != 1 {
		t.Errorf("after 600 s of being well there were %d failures, want 1", w.server.Status.Failures)
	}
}

// Without a port on the node a Server is reached at its Pod alone, so that no two are told to be
// at one address and port.
func TestAnAddressIsWhereThePortsAre(t *testing.T) {
	s := newWorld().server
	s.Spec.Ports = []v1alpha1.ServerPort{
		{Name: "game", Protocol: v1alpha1.ServerProtocolTCPUDP, Expose: v1alpha1.ExposePassthrough},
		{Name: "query-of-a-game", ContainerPort: 7778, Protocol: v1alpha1.ServerProtocolTCPUDP, Expose: v1alpha1.ExposeHostPort},
		{Name: "inner", ContainerPort: 80},
	}
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}
	o := Observed{Pod: podbuilder.Build(s, podbuilder.Sidecar{}, []int32{7000, 7001, 0}, true), Node: node}
	o.Pod.Status.PodIP = "10.1.2.3"
	if setPod(s, o); s.Status.Address != "192.0.2.1" || len(s.Status.Ports) != 2 {
		t.Errorf("exposed ports are at %s: %+v", s.Status.Address, s.Status.Ports)
	}
	s.Spec.Ports = s.Spec.Ports[2:]
	o.Pod = podbuilder.Build(s, podbuilder.Sidecar{}, []int32{0}, true)
	o.Pod.Status.PodIP = "10.1.2.3"
	want := []v1alpha1.ServerPortStatus{{Name: "inner", Port: 80}}
	if setPod(s, o); s.Status.Address != "10.1.2.3" || !cmp.Equal(s.Status.Ports, want) {
		t.Errorf("inner ports are at %s: %+v", s.Status.Address, s.Status.Ports)
	}
}

// Of which generation a Server's conditions are is said once, in its status. What an earlier version said in
// each stays until it isn't true any more: an upgrade changes no status.
func TestTheGenerationIsSaidOnce(t *testing.T) {
	w := newWorld()
	s := w.server
	generations := func() (said []int64) {
		SetStatus(noon, s, w.o, Make(noon, s, w.o), nil)
		SetRefused(noon, s, reasons.PodRefused, "No.")
		for _, c := range s.Status.Conditions {
			said = append(said, c.ObservedGeneration)
		}
		return said
	}
	s.Generation = 3
	if said := generations(); s.Status.ObservedGeneration != 3 || !cmp.Equal(said, []int64{0, 0, 0, 0}) {
		t.Errorf("the status is of generation %d, and its conditions of %v", s.Status.ObservedGeneration, said)
	}
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].ObservedGeneration = 3
	}
	if said := generations(); !cmp.Equal(said, []int64{3, 3, 3, 3}) {
		t.Errorf("an earlier version's conditions are of %v now", said)
	}
	s.Generation = 4
	if said := generations(); s.Status.ObservedGeneration != 4 || !cmp.Equal(said, []int64{0, 0, 0, 0}) {
		t.Errorf("the next status is of generation %d, and its conditions of %v", s.Status.ObservedGeneration, said)
	}
}

// Only what is scaled by itself says how its Pod is found. An earlier version's stays: an upgrade changes no
// status.
func TestOnlyAServerOutsideFleetsHasASelector(t *testing.T) {
	s := newWorld().server
	if setPod(s, Observed{}); s.Status.Selector != "dormouse.dev/server="+s.Name {
		t.Errorf("outside Fleets it is %q", s.Status.Selector)
	}
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Name: "lobbies", UID: "fleet"}}, v1alpha1.GroupVersion.WithKind("Fleet"))}
	if setPod(s, Observed{}); s.Status.Selector == "" {
		t.Error("an earlier version's is gone")
	}
	s.Status.Selector = ""
	if setPod(s, Observed{}); s.Status.Selector != "" {
		t.Errorf("in a Fleet it is %q", s.Status.Selector)
	}
}
