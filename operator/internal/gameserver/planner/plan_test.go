package planner

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/hostports"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) *metav1.Time {
	return new(metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second)))
}

// world is a Server that plays, on a node that answers, and what differs.
type world struct {
	server *v1alpha1.Server
	o      Observed
	// portTrouble is why a new Pod would get none.
	portTrouble error
}

func newWorld(changes ...func(*world)) *world {
	w := &world{
		server: &v1alpha1.Server{
			ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "server"},
			Spec: v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "game"}, {Name: "logs"}},
			}}},
		},
		o: Observed{
			NodeLostAfter: 5 * time.Minute,
			Node: &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			}}},
			Pod: &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "pod", CreationTimestamp: *at(-1000)},
				Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "game"}, {Name: "logs"}}},
				Status: corev1.PodStatus{
					Phase:      corev1.PodRunning,
					Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
					ContainerStatuses: []corev1.ContainerStatus{
						{Name: "logs"},
						{Name: "game", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
					},
				},
			},
			Patience: hostports.FirstPatience,
		},
	}
	w.say(v1alpha1.GameReady, 0)
	for _, change := range changes {
		change(w)
	}
	return w
}

// say lets the sidecar report.
func (w *world) say(state v1alpha1.GameState, players int32) {
	w.server.Status.Game = &v1alpha1.GameStatus{State: state, PodUID: "pod", Reported: true}
	w.server.Status.Players = &v1alpha1.PlayersStatus{Current: players}
	w.server.Status.DeletionAllowed = players == 0 && state != v1alpha1.GameAllocated
}

func players(n int32) func(*world) { return func(w *world) { w.say(v1alpha1.GameReady, n) } }

// full16 lets as many play as may.
func full16(w *world) {
	w.say(v1alpha1.GameReady, 16)
	w.server.Status.Players.Capacity = 16
	w.o.Pod.Status.ContainerStatuses[1].Ready = true
}

func deleted(seconds int) func(*world) {
	return func(w *world) { w.server.DeletionTimestamp = at(seconds) }
}

// lookAllows lets the sidecar, which knows of the deletion, reply a last time that it may go.
func lookAllows(w *world) {
	unready(-10)(w)
	w.o.LookAllows = true
}

// seen lets the sidecar know of the deletion, and the endpoints with it.
func seen(w *world) {
	w.server.Status.Game.ShutdownSeen = true
	unready(-2)(w)
}

func unready(seconds int) func(*world) {
	return func(w *world) {
		w.o.Pod.Status.Conditions[0].Status = corev1.ConditionFalse
		w.o.Pod.Status.Conditions[0].LastTransitionTime = *at(seconds)
	}
}

func stillReady(w *world) { w.o.Pod.Status.Conditions[0].Status = corev1.ConditionTrue }

func sidecarRuns(w *world) {
	w.o.Pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: wellknown.SidecarContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
}

// unsaid lets the sidecar report that the game has said nothing, of which it was told to think the worst, and denied
// has the spec say so, too.
func unsaid(w *world) {
	w.say(v1alpha1.GameStarting, 0)
	w.server.Status.Game.Reported, w.server.Status.Players, w.server.Status.DeletionAllowed = false, nil, false
}

// broken lets the sidecar report that such a game is broken, and whether anybody can be playing.
func broken(deserted bool) func(*world) {
	return func(w *world) {
		unsaid(w)
		w.server.Status.Game.State, w.server.Status.DeletionAllowed = v1alpha1.GameUnhealthy, deserted
	}
}

func denied(w *world) { w.server.Spec.Deletion.Unreported = v1alpha1.DeletionDenied }

// earlierSpec has the Pod made from another spec.
func earlierSpec(w *world) {
	w.o.Pod.Annotations = map[string]string{wellknown.PodHashAnnotation: "another"}
}

func renamed(w *world) {
	w.o.Pod.Annotations = map[string]string{gamepod.ContainerAnnotation: "game"}
	w.server.Spec.Template.Spec.Containers[0].Name = "renamed"
}

func silent(w *world) { w.server.Status.Game = nil }

func drained(w *world) { w.server.Spec.Drain = true }

func ofFleet(w *world) {
	w.server.OwnerReferences = []metav1.OwnerReference{{Kind: "Fleet", Controller: new(true)}}
}

// held and shared have Allocations have the Server.
func held(w *world) { w.o.Holder = book.Holder{Name: "match"} }

func shared(w *world) { w.o.Holder = book.Holder{Shared: 2} }

func stopped(w *world) { w.server.Spec.Running = new(false) }

func crashed(w *world) {
	w.o.Pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
}

func podGone(w *world) { w.o.Pod = nil }

func podEnded(w *world) {
	w.o.Pod.Status.Phase = corev1.PodFailed
}

func podDeleted(seconds int) func(*world) {
	return func(w *world) { w.o.Pod.DeletionTimestamp = at(seconds) }
}

func nodeSilent(seconds int) func(*world) {
	return func(w *world) {
		w.o.Node.Status.Conditions[0].Status = corev1.ConditionUnknown
		w.o.Node.Status.Conditions[0].LastTransitionTime = *at(seconds)
	}
}

func nodeUnready(w *world) { w.o.Node.Status.Conditions[0].Status = corev1.ConditionFalse }

func timeout(d time.Duration) func(*world) {
	return func(w *world) { w.server.Spec.Deletion.Timeout = &metav1.Duration{Duration: d} }
}

func failures(n int32, seconds int) func(*world) {
	return func(w *world) { w.server.Status.Failures, w.server.Status.LastFailureTime = n, at(seconds) }
}

func clashes(w *world) {
	w.o.Clashes = true
	w.o.Pod.Status.PodIP = "10.244.1.7"
}

func waitsForPort(w *world) {
	w.server.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 1, Expose: v1alpha1.ExposeHostPort}}
	w.o.Pod.Spec.NodeName = ""
	w.o.Pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: *at(-10),
		Message: "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.",
	}}}
}

func TestPlan(t *testing.T) {
	const nothing = "nothing"
	tests := map[string]struct {
		world *world
		want  string
		again time.Duration
	}{
		"a game that plays is left alone":                   {world: newWorld(players(3)), want: nothing},
		"an empty game is left alone":                       {world: newWorld(), want: nothing},
		"a Server without a Pod gets one":                   {world: newWorld(podGone), want: "create"},
		"a stopped Server without a Pod is left alone":      {world: newWorld(podGone, stopped), want: nothing},
		"a deleted Server without a Pod goes":               {world: newWorld(podGone, deleted(0)), want: "release"},
		"a Pod that ended is replaced":                      {world: newWorld(podEnded), want: "erase failed"},
		"a Pod that a person deleted is no failure":         {world: newWorld(podDeleted(20)), want: nothing, again: 20 * time.Second},
		"a Pod that ended after a person deleted it is not": {world: newWorld(podEnded, podDeleted(20)), want: "erase"},
		"the first failure costs no time":                   {world: newWorld(podGone, failures(1, 0)), want: "create"},
		"the third failure costs ten seconds":               {world: newWorld(podGone, failures(3, -4)), want: nothing, again: 6 * time.Second},
		"the third failure's time passes":                   {world: newWorld(podGone, failures(3, -10)), want: "create"},
		"a failure in the future costs no time":             {world: newWorld(podGone, failures(3, 1)), want: "create"},
		"no failure costs more than five minutes":           {world: newWorld(podGone, failures(1000000, 0)), want: nothing, again: 5 * time.Minute},
		"a Pod of that name that is somebody's is not touched": {
			world: newWorld(func(w *world) { w.o.Pod, w.o.Stranger = nil, true }), want: nothing,
		},
		"a Server whose Pod's name is somebody's goes": {
			world: newWorld(deleted(0), func(w *world) { w.o.Pod, w.o.Stranger = nil, true }), want: "release",
		},
		"a game that asks for its end gets it": {
			world: newWorld(func(w *world) { w.say(v1alpha1.GameShutdown, 0) }), want: "retire",
		},
		"a game that ended because it was told, and is wanted again, starts anew": {
			world: newWorld(func(w *world) { w.say(v1alpha1.GameShutdown, 0); seen(w) }), want: "remove",
		},
		"nor does its end retire the Server while its Pod ends": {
			world: newWorld(func(w *world) { w.say(v1alpha1.GameShutdown, 0) }, podDeleted(30)), want: nothing, again: 30 * time.Second,
		},
		"one of an earlier spec is told to end once it is empty": {world: newWorld(earlierSpec, players(0)), want: "restart"},
		"but not under its players":                              {world: newWorld(earlierSpec, players(2)), want: nothing},
		"one that was told goes when it has answered": {
			world: newWorld(earlierSpec, players(0), seen, func(w *world) { w.o.Pod.Annotations[wellknown.RestartAnnotation] = "true" }), want: "remove",
		},
		"the disk of a Pod on a lost node may be written to still": {
			world: newWorld(deleted(-600), players(0), nodeSilent(-330), podDeleted(-1), func(w *world) { w.server.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world"}} }), want: nothing,
		},
		"a drained Server that is empty goes":    {world: newWorld(drained), want: "retire"},
		"a drained Server with players stays":    {world: newWorld(drained, players(1)), want: nothing},
		"a drained Server without a Pod goes":    {world: newWorld(drained, podGone), want: "retire"},
		"a drained Server is its Fleet's to end": {world: newWorld(drained, ofFleet), want: nothing},
		"another Pod's wish for its end is not this one's": {
			world: newWorld(func(w *world) {
				w.say(v1alpha1.GameShutdown, 0)
				w.server.Status.Game.PodUID = "earlier"
			}), want: nothing,
		},

		// The guard.
		"a deleted Server whose sidecar hasn't seen it stays":        {world: newWorld(deleted(0)), want: nothing},
		"a deleted Server that is empty and knows it goes":           {world: newWorld(deleted(0), seen), want: "remove"},
		"a deleted Server whose Pod is still ready waits":            {world: newWorld(deleted(0), seen, stillReady), want: nothing, again: 2 * time.Second},
		"a deleted Server waits for its endpoints to be gone":        {world: newWorld(deleted(0), seen, unready(-1)), want: nothing, again: time.Second},
		"also where its node's clock is a little ahead":              {world: newWorld(deleted(0), seen, unready(5)), want: nothing, again: 7 * time.Second},
		"but not where that is minutes ahead":                        {world: newWorld(deleted(0), seen, unready(600)), want: "remove"},
		"a deleted Server goes by its sidecar's last word":           {world: newWorld(deleted(0), lookAllows), want: "remove"},
		"but not while its Pod is still ready":                       {world: newWorld(deleted(0), lookAllows, stillReady), want: nothing, again: 2 * time.Second},
		"nor with players":                                           {world: newWorld(deleted(0), players(1), lookAllows), want: nothing},
		"a stopped Server goes by its sidecar's last word":           {world: newWorld(stopped, lookAllows), want: "remove"},
		"a game that is said to play is not taken for ended":         {world: newWorld(deleted(0), players(3), crashed, sidecarRuns), want: nothing},
		"one that said nothing and doesn't run doesn't":              {world: newWorld(deleted(0), unsaid, denied, crashed, sidecarRuns), want: "remove"},
		"nor does its broken Pod stay once the spec is mended":       {world: newWorld(earlierSpec, unsaid, denied, crashed, sidecarRuns), want: "remove"},
		"one that said nothing and runs stays where that is Denied":  {world: newWorld(deleted(0), unsaid, denied, sidecarRuns), want: nothing},
		"a game whose container has another name in the spec":        {world: newWorld(deleted(0), players(3), renamed), want: nothing},
		"a node that says itself that it isn't ready answers":        {world: newWorld(deleted(0), players(3), nodeSilent(-3000), nodeUnready), want: nothing},
		"a deleted Server with players stays":                        {world: newWorld(deleted(0), players(1), seen), want: nothing},
		"a deleted Server that is Allocated stays":                   {world: newWorld(deleted(0), func(w *world) { w.say(v1alpha1.GameAllocated, 0) }, seen), want: nothing},
		"a deleted Server that an Allocation has stays":              {world: newWorld(deleted(0), seen, held), want: nothing},
		"and one that Allocations share":                             {world: newWorld(deleted(0), seen, shared), want: nothing},
		"and one whose game lets it go":                              {world: newWorld(deleted(0), seen, held, func(w *world) { w.server.Status.Game.Permission = v1alpha1.DeletionAllowed }), want: nothing},
		"by force it goes":                                           {world: newWorld(deleted(0), seen, held, func(w *world) { w.server.Spec.Deletion.Force = true }), want: "remove forced"},
		"one that an Allocation has and whose game ends itself goes": {world: newWorld(held, func(w *world) { w.say(v1alpha1.GameShutdown, 0) }), want: "retire"},
		"one that an Allocation has is not restarted":                {world: newWorld(earlierSpec, players(0), held), want: nothing},
		"one that an Allocation has and whose game is broken goes":   {world: newWorld(held, func(w *world) { w.say(v1alpha1.GameUnhealthy, 0) }), want: "remove failed"},
		"a deleted Server that says nothing stays":                   {world: newWorld(deleted(-100000), silent), want: nothing},
		"what another Pod's sidecar said doesn't count":              {world: newWorld(deleted(0), seen, func(w *world) { w.server.Status.Game.PodUID = "earlier" }), want: nothing},
		"a deleted Server whose game doesn't run goes":               {world: newWorld(deleted(0), players(3), crashed), want: "remove"},
		"a deleted Server whose Pod has ended goes":                  {world: newWorld(deleted(0), players(3), podEnded), want: "erase"},
		"a deleted Server with players is forced":                    {world: newWorld(deleted(0), players(3), func(w *world) { w.server.Spec.Deletion.Force = true }), want: "remove forced"},
		"a deleted Server that says nothing is forced":               {world: newWorld(deleted(0), silent, func(w *world) { w.server.Spec.Deletion.Force = true }), want: "remove forced"},
		"a deleted Server with players waits for its timeout":        {world: newWorld(deleted(-10), players(3), timeout(time.Minute)), want: nothing, again: 50 * time.Second},
		"a deleted Server with players goes after its timeout":       {world: newWorld(deleted(-60), players(3), timeout(time.Minute)), want: "remove forced"},
		"a deleted Server that says nothing goes after its timeout":  {world: newWorld(deleted(-60), silent, timeout(time.Minute)), want: "remove forced"},
		"no timeout is never":                                        {world: newWorld(deleted(-1000000), players(3), timeout(0)), want: nothing},
		"a Pod that ended as told is its node's to remove":           {world: newWorld(deleted(0), seen, podEnded, podDeleted(30)), want: nothing, again: 35 * time.Second},
		"but not for ever":                                           {world: newWorld(deleted(0), seen, podEnded, podDeleted(-5)), want: "erase"},
		"nor for as long as it had to end": {world: newWorld(deleted(0), seen, podEnded, podDeleted(3600), func(w *world) {
			w.o.Pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: *at(-100)}}
			w.o.Pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: *at(-2)}}
		}), want: nothing, again: 3 * time.Second},
		"nor where its node isn't there":            {world: newWorld(deleted(0), podEnded, podDeleted(30), func(w *world) { w.o.Node = nil }), want: "erase"},
		"a deleted Server waits for its Pod to end": {world: newWorld(deleted(0), seen, podDeleted(30)), want: nothing, again: 30 * time.Second},
		"a Pod that a person deleted keeps its Server until it ends": {
			world: newWorld(deleted(0), players(3), podDeleted(30)), want: nothing,
		},
		"a stopped Server that is empty and knows it stops": {world: newWorld(stopped, seen), want: "remove"},
		"a stopped Server with players stays":               {world: newWorld(stopped, players(1), seen), want: nothing},

		// Nodes.
		"a node that has been silent for a minute is waited for":        {world: newWorld(deleted(0), players(3), nodeSilent(-60)), want: nothing, again: 4 * time.Minute},
		"a deleted Server's Pod on a lost node is told to end":          {world: newWorld(deleted(0), players(3), nodeSilent(-300)), want: "remove"},
		"a Pod on a lost node has its time to end":                      {world: newWorld(deleted(0), players(3), nodeSilent(-300), podDeleted(30)), want: nothing, again: 30 * time.Second},
		"a Pod on a lost node is gone after it":                         {world: newWorld(deleted(0), players(3), nodeSilent(-330), podDeleted(-1)), want: "erase"},
		"a Pod whose node isn't there is gone after its time to end":    {world: newWorld(deleted(0), players(3), podDeleted(-1), func(w *world) { w.o.Node = nil }), want: "erase"},
		"a Pod whose time to end is over on a node that answers is not": {world: newWorld(deleted(0), players(3), podDeleted(-1)), want: nothing},
		"a Server on a lost node is not deleted by itself":              {world: newWorld(players(3), nodeSilent(-3000)), want: nothing},
		"a Server whose Pod was evicted from a lost node gets another":  {world: newWorld(players(3), nodeSilent(-3000), podDeleted(-1)), want: "erase"},
		"but not one that has a disk, which may be written to there": {
			world: newWorld(players(3), nodeSilent(-3000), podDeleted(-1), func(w *world) { w.server.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world"}} }), want: nothing,
		},

		// Health.
		"an unhealthy game that is empty is replaced": {
			world: newWorld(func(w *world) { w.say(v1alpha1.GameUnhealthy, 0) }), want: "remove failed",
		},
		"one that only pinged, and can't have players any more": {world: newWorld(denied, broken(true)), want: "remove failed"},
		"one that only pinged, a moment ago":                    {world: newWorld(denied, broken(false)), want: nothing},
		"one that only pinged, and is deleted":                  {world: newWorld(denied, broken(true), deleted(0), seen), want: "remove"},
		"an unhealthy game with players is not": {
			world: newWorld(func(w *world) { w.say(v1alpha1.GameUnhealthy, 2) }), want: nothing,
		},
		"an unhealthy game of a Fleet is the Fleet's to replace": {
			world: newWorld(func(w *world) {
				w.say(v1alpha1.GameUnhealthy, 0)
				w.server.OwnerReferences = []metav1.OwnerReference{{Kind: "Fleet", Controller: new(true)}}
			}), want: nothing,
		},

		// Host ports.
		"a Pod that waits for a port is looked at again": {world: newWorld(waitsForPort), want: nothing, again: 20 * time.Second},
		"a Pod that waits for a port gets a better one": {
			world: newWorld(waitsForPort, func(w *world) { w.o.Better, w.o.BetterInVain = true, true }), want: "erase",
		},
		"a Pod whose port has become an ElasticService's gets another one before its network is set up": {
			world: newWorld(clashes, func(w *world) { w.o.Pod.Status.PodIP = "" }), want: "remove",
		},
		"so does one that has no node": {
			world: newWorld(clashes, waitsForPort), want: "erase",
		},
		"one whose network is set up keeps it: only another Pod would end sessions": {
			world: newWorld(clashes), want: nothing,
		},
		"a Pod whose port its owner chose keeps it": {
			world: newWorld(waitsForPort, func(w *world) {
				w.server.Spec.Ports[0].HostPort = 7000
				w.o.Better, w.o.BetterInVain = true, true
			}), want: nothing,
		},
		"a Server whose ports can't be picked waits": {
			world: newWorld(podGone, func(w *world) { w.portTrouble = errors.New("too few") }), want: nothing,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := Make(noon, test.world.server, test.world.o)
			got := ""
			for _, action := range []struct {
				name string
				set  bool
			}{{"create", p.Create && test.world.portTrouble == nil}, {"remove", p.Remove}, {"erase", p.Erase}, {"release", p.Release}, {"retire", p.Retire != ""}, {"restart", p.Restart}, {"forced", p.Forced}, {"failed", p.Failed}} {
				if action.set && got != "" {
					got += " "
				}
				if action.set {
					got += action.name
				}
			}
			if got == "" {
				got = nothing
			}
			if got != test.want || (test.again != 0 && p.RequeueAfter.Duration() != test.again) {
				t.Errorf("the plan is %s, again in %s; want %s, %s (the guard: %+v)", got, p.RequeueAfter.Duration(), test.want, test.again, p.guard)
			}
		})
	}
}

// Numbers are given up as refused only where the Pod has waited for them in vain: one that
// changes to a number with a node left says nothing of its own.
func TestOnlyAPodThatWaitedInVainWasRefusedItsPorts(t *testing.T) {
	for patience, want := range map[time.Duration]bool{time.Second: true, time.Hour: false} {
		w := newWorld(waitsForPort, func(w *world) {
			w.o.Better, w.o.BetterInVain, w.o.Patience = true, true, patience
		})
		if p := Make(noon, w.server, w.o); !p.Erase || p.Refused != want {
			t.Errorf("with a patience of %s: erased %t, refused %t; want true and %t", patience, p.Erase, p.Refused, want)
		}
	}
}

// A Pod that has no node for want of something else, too, isn't replaced for its numbers.
func TestWhoWaitsForMoreThanPortsKeepsThem(t *testing.T) {
	w := newWorld(waitsForPort, func(w *world) {
		w.o.Pod.Status.Conditions[0].Message = "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) didn't have free ports for the requested pod ports."
		w.o.BetterInVain, w.o.Patience = true, time.Second
	})
	if p := Make(noon, w.server, w.o); p.Erase || p.Refused || p.RequeueAfter == 0 {
		t.Errorf("erased %t, refused %t, looked at again after %s", p.Erase, p.Refused, p.RequeueAfter.Duration())
	}
}
