package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// server is one whose game is Ready, of Pod "pod-1", as instance "one" said in
// its fifth report.
func server(change ...func(*v1alpha1.Server)) *v1alpha1.Server {
	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby-1", UID: "server-1", ResourceVersion: "7", Generation: 1},
		Spec: v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "game"}, {Name: "helper"}},
		}}},
		Status: v1alpha1.ServerStatus{
			State: v1alpha1.ServerReady, DeletionAllowed: true,
			Game: &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: "pod-1", Since: &metav1.Time{Time: noon}, Instance: "one", Sequence: 5},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

// report is what instance "one" says next and changes nothing.
func report(change ...func(*reportapi.Report)) *said {
	r := &reportapi.Report{Server: "lobby-1", Instance: "one", Sequence: 6, DeletionAllowed: true, Game: reportapi.Game{State: v1alpha1.GameReady}}
	for _, f := range change {
		f(r)
	}
	return &said{podName: "lobby-1", podUID: "pod-1", report: r, at: noon.Add(time.Minute), since: noon.Add(time.Minute), base: "one"}
}

func players(n int32) func(*reportapi.Report) {
	return func(r *reportapi.Report) { r.Game.Players = &v1alpha1.PlayersStatus{Current: n, Capacity: 20} }
}

func capacity(s *v1alpha1.Server) { s.Spec.Players = &v1alpha1.PlayersSpec{Capacity: 16} }

func unreported(s *v1alpha1.Server) { s.Status.Game = nil }

func TestCompare(t *testing.T) {
	starting := func(r *reportapi.Report) { r.Game.State = v1alpha1.GameStarting }
	type want struct {
		Reason          string
		Urgent, CanWait bool
		Status          bool
	}
	for name, c := range map[string]struct {
		server *v1alpha1.Server
		said   *said
		want   want
	}{
		"nothing changed":                       {server(), report(), want{}},
		"a game that starts and says nothing":   {server(unreported), report(starting), want{CanWait: true}},
		"a game that starts in a new Pod":       {server(func(s *v1alpha1.Server) { s.Status.Game.PodUID = "pod-0" }), report(starting), want{CanWait: true}},
		"a game that starts and has a capacity": {server(unreported), report(starting, players(0)), want{Reason: reasonPlayers, CanWait: true, Status: true}},
		"a game that starts on a Server with a capacity": {
			server(unreported, capacity, func(s *v1alpha1.Server) { s.Status.Players = &v1alpha1.PlayersStatus{Capacity: 16} }), report(starting), want{CanWait: true},
		},
		"a game that starts and has a player": {server(unreported), report(starting, players(1)), want{Reason: reasonPlayers, Status: true}},
		"a game that starts on a Server being drained": {
			server(unreported, func(s *v1alpha1.Server) { s.Spec.Drain = true }), report(starting, players(0)), want{Reason: reasonPlayers, Status: true},
		},
		"a game that became ready":             {server(unreported), report(players(0)), want{Reason: reasonState, Urgent: true, Status: true}},
		"a game that starts again":             {server(), report(starting), want{Reason: reasonState, Urgent: true, Status: true}},
		"a Ready game in a new Pod":            {server(func(s *v1alpha1.Server) { s.Status.Game.PodUID = "pod-0" }), report(), want{Reason: reasonState, Urgent: true, Status: true}},
		"a player came":                        {server(), report(players(1)), want{Reason: reasonPlayers, Status: true}},
		"the players are not known any more":   {server(func(s *v1alpha1.Server) { s.Status.Players = &v1alpha1.PlayersStatus{Current: 2} }), report(), want{Reason: reasonPlayers, Status: true}},
		"the deletion is not allowed any more": {server(), report(players(1), func(r *reportapi.Report) { r.DeletionAllowed = false }), want{Reason: reasonDenied, Urgent: true, Status: true}},
		"the deletion is allowed again":        {server(func(s *v1alpha1.Server) { s.Status.DeletionAllowed = false }), report(), want{Reason: reasonOther, Status: true}},
		"the sidecar knows of the deletion":    {server(), report(func(r *reportapi.Report) { r.ShutdownSeen = true }), want{Reason: reasonShutdown, CanWait: true, Status: true}},
		"the sidecar knows of the deletion, and the last player has gone": {
			server(func(s *v1alpha1.Server) {
				s.Status.Players, s.Status.DeletionAllowed = &v1alpha1.PlayersStatus{Current: 1}, false
			}),
			report(players(0), func(r *reportapi.Report) { r.ShutdownSeen = true }),
			want{Reason: reasonShutdown, Urgent: true, Status: true},
		},
		"the sidecar knows of the deletion, with players": {
			server(func(s *v1alpha1.Server) {
				s.Status.Players, s.Status.DeletionAllowed = &v1alpha1.PlayersStatus{Current: 1}, false
			}),
			report(players(1), func(r *reportapi.Report) { r.ShutdownSeen, r.DeletionAllowed = true, false }),
			want{Reason: reasonShutdown, Urgent: true, Status: true},
		},
		"the game gave a permission": {server(), report(func(r *reportapi.Report) { r.Game.Permission = v1alpha1.DeletionAllowed }), want{Reason: reasonOther, Status: true}},
		"a new Server's game that is Denied": {
			server(func(s *v1alpha1.Server) { s.Status = v1alpha1.ServerStatus{} }),
			report(starting, func(r *reportapi.Report) { r.DeletionAllowed = false }),
			want{Reason: reasonDenied, Urgent: true, Status: true},
		},
		"a new Server's game that is Denied until it says otherwise": {
			server(func(s *v1alpha1.Server) {
				s.Status, s.Spec.Deletion.Unreported = v1alpha1.ServerStatus{}, v1alpha1.DeletionDenied
			}),
			report(starting, func(r *reportapi.Report) { r.DeletionAllowed = false }),
			want{CanWait: true},
		},
		"a counter": {server(), report(func(r *reportapi.Report) { r.Game.Counters = map[string]v1alpha1.Counter{"a": {Count: 1, Capacity: 2}} }), want{Reason: reasonOther, Status: true}},
		"a list that lost its values": {server(func(s *v1alpha1.Server) {
			s.Status.Lists = map[string]v1alpha1.List{"a": {Capacity: 1, Values: []string{"x"}}}
		}), report(func(r *reportapi.Report) { r.Game.Lists = map[string]v1alpha1.List{"a": {Capacity: 1}} }), want{Reason: reasonOther, Status: true}},
		"an end of a reservation within the second": {server(func(s *v1alpha1.Server) { s.Status.Game.ReservedUntil = &metav1.Time{Time: noon} }), report(func(r *reportapi.Report) { r.Game.ReservedUntil = new(noon.Add(time.Millisecond)) }), want{}},
		"a label":                             {server(), report(func(r *reportapi.Report) { r.Game.Labels = map[string]string{"agones.dev/sdk-a": "b"} }), want{Reason: reasonMetadata}},
		"a label that is there":               {server(func(s *v1alpha1.Server) { s.Labels = map[string]string{"agones.dev/sdk-a": "b", "app": "c"} }), report(func(r *reportapi.Report) { r.Game.Labels = map[string]string{"agones.dev/sdk-a": "b"} }), want{}},
		"another instance that says the same": {server(), report(func(r *reportapi.Report) { r.Instance, r.Sequence = "two", 1 }), want{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := compare(c.server, c.said)
			if diff := cmp.Diff(c.want, want{got.reason, got.urgent, got.patience > 0 && !got.none() || c.want.CanWait && got.patience > 0, got.status != nil}); diff != "" {
				t.Errorf("change (-want +got):\n%s", diff)
			}
			if got.none() != (c.want.Reason == "") {
				t.Errorf("none is %t, want the opposite", got.none())
			}
		})
	}
}

// A report that says what the status says is written where another replica may
// have one in between.
func TestADenialSupersedesWhatAnotherReplicaHas(t *testing.T) {
	denied := func(s *v1alpha1.Server) { s.Status.DeletionAllowed = false }
	from := func(sequence uint64, from int64, change ...func(*reportapi.Report)) *said {
		s := report(append([]func(*reportapi.Report){func(r *reportapi.Report) { r.Sequence, r.DeletionAllowed = sequence, false }}, change...)...)
		s.from = from
		return s
	}
	deniedSince := func(since int64, s *said) *said {
		s.deniedSince = since
		return s
	}
	starting := func(r *reportapi.Report) { r.Game.State = v1alpha1.GameStarting }
	for name, c := range map[string]struct {
		server *v1alpha1.Server
		said   *said
		reason string
		urgent bool
	}{
		"the one before went elsewhere":               {server(denied), from(7, 7), reasonOrder, true},
		"it did a while ago and nothing was written":  {server(denied), from(20, 7), reasonOrder, true},
		"all came here":                               {server(denied), from(20, 3), "", false},
		"the one before is written":                   {server(denied), from(6, 6), "", false},
		"all since the status were busy":              {server(denied), deniedSince(6, from(20, 20)), "", false},
		"all since before the status were busy":       {server(denied), deniedSince(3, from(20, 20)), "", false},
		"one since the status wasn't busy":            {server(denied), deniedSince(7, from(20, 20)), reasonOrder, true},
		"all of another instance were busy":           {server(denied), deniedSince(1, from(20, 20, func(r *reportapi.Report) { r.Instance = "two" })), reasonOrder, true},
		"the status is of another instance":           {server(denied), from(2, 2, func(r *reportapi.Report) { r.Instance = "two" }), reasonOrder, true},
		"the number of players is to be written soon": {server(denied), from(7, 7, players(2)), reasonPlayers, true},
		"a game that starts isn't in a hurry":         {server(denied, unreported), from(2, 2, starting), reasonOrder, false},
		"nobody plays":                                {server(), from(7, 7, func(r *reportapi.Report) { r.DeletionAllowed = true }), "", false},
	} {
		if got := compare(c.server, c.said); got.reason != c.reason || got.urgent != c.urgent || got.none() != (c.reason == "") {
			t.Errorf("%s: reason %q, urgent %t, none %t; want %q, %t", name, got.reason, got.urgent, got.none(), c.reason, c.urgent)
		}
	}
}

func TestWhatIsWritten(t *testing.T) {
	s := server(func(s *v1alpha1.Server) { s.Status.PodName = "not ours" })
	got := compare(s, report(players(2), func(r *reportapi.Report) {
		r.DeletionAllowed = false
		r.Game.Counters = map[string]v1alpha1.Counter{"a": {Count: 1, Capacity: 2}}
	}))
	want := &v1alpha1.ServerStatus{
		Players:  &v1alpha1.PlayersStatus{Current: 2, Capacity: 20},
		Counters: map[string]v1alpha1.Counter{"a": {Count: 1, Capacity: 2}},
		// The state is as it was, and so is its time.
		Game: &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: "pod-1", Since: &metav1.Time{Time: noon}, Instance: "one", Sequence: 6},
	}
	if diff := cmp.Diff(want, got.status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	for said, want := range map[*said]v1alpha1.PlayersStatus{
		report():           {Capacity: 16},
		report(players(2)): {Current: 2, Capacity: 20},
		report(func(r *reportapi.Report) { r.Game.Players = &v1alpha1.PlayersStatus{Current: 3} }): {Current: 3, Capacity: 16},
	} {
		got := compare(server(capacity), said)
		if diff := cmp.Diff(&want, got.status.Players); diff != "" {
			t.Errorf("players with a capacity in the spec (-want +got):\n%s", diff)
		}
	}
	got = compare(s, report(func(r *reportapi.Report) { r.Game.State = v1alpha1.GameAllocated }))
	if since := got.status.Game.Since.Time; !since.Equal(noon.Add(time.Minute)) {
		t.Errorf("a new state is since %s, want %s", since, noon.Add(time.Minute))
	}
}

func TestSuperseded(t *testing.T) {
	status := func(instance string, sequence int64) *v1alpha1.ServerStatus {
		return &v1alpha1.ServerStatus{Game: &v1alpha1.GameStatus{PodUID: "pod-1", Instance: instance, Sequence: sequence}}
	}
	for name, c := range map[string]struct {
		status *v1alpha1.ServerStatus
		want   bool
	}{
		"nothing was written":               {&v1alpha1.ServerStatus{}, false},
		"an earlier report of the instance": {status("one", 5), false},
		"the same report":                   {status("one", 6), false},
		"a later report of the instance":    {status("one", 7), true},
		"an instance that came since":       {status("two", 1), true},
		"one of another Pod":                {&v1alpha1.ServerStatus{Game: &v1alpha1.GameStatus{PodUID: "pod-0", Instance: "two", Sequence: 9}}, false},
		"the controller wrote it, not we":   {status("", 0), false},
	} {
		if got := report().supersededBy(c.status); got != c.want {
			t.Errorf("%s: superseded is %t, want %t", name, got, c.want)
		}
	}
	first := report(func(r *reportapi.Report) { r.Instance, r.Sequence = "two", 1 })
	if first.supersededBy(status("one", 5)) {
		t.Error("the first report of a new instance counts as older than the last of the one before")
	}
}

func TestDue(t *testing.T) {
	players, denied := change{reason: reasonPlayers}, change{reason: reasonPlayers, patience: startTime}
	for name, c := range map[string]struct {
		seen, written time.Time
		change        change
		want          time.Duration
	}{
		"nothing was written lately":        {noon, time.Time{}, players, 0},
		"a write was a moment ago":          {noon, noon.Add(-300 * time.Millisecond), players, 700 * time.Millisecond},
		"a game just began to start":        {noon, time.Time{}, denied, 5 * time.Second},
		"a game has been starting for long": {noon.Add(-time.Minute), time.Time{}, denied, 0},
	} {
		if got := due(noon, c.seen, c.written, c.change); got != c.want {
			t.Errorf("%s: due after %s, want %s", name, got, c.want)
		}
	}
}

func TestRestored(t *testing.T) {
	s := server(func(s *v1alpha1.Server) {
		s.Labels = map[string]string{"agones.dev/sdk-a": "b", "app": "lobby"}
		s.Annotations = map[string]string{
			"note":                "c",
			"agones.dev/sdk-most": strings.Repeat("x", reportapi.MaxAnnotationBytes),
			"agones.dev/sdk-long": strings.Repeat("x", reportapi.MaxAnnotationBytes+1),
		}
		s.Spec.Counters = map[string]v1alpha1.Counter{"rooms": {Capacity: 3}}
		s.Status.Players = &v1alpha1.PlayersStatus{Current: 4}
		s.Status.Lists = map[string]v1alpha1.List{"l": {Capacity: 2}}
		s.Status.Game.Permission, s.Status.Game.Reported = v1alpha1.DeletionDenied, true
		s.Status.Game.ReservedUntil = &metav1.Time{Time: noon}
	})
	ofStatus := &reportapi.Game{
		State: v1alpha1.GameReady, Reported: true, Permission: v1alpha1.DeletionDenied, ReservedUntil: new(noon),
		Players:  &v1alpha1.PlayersStatus{Current: 4},
		Counters: map[string]v1alpha1.Counter{"rooms": {Capacity: 3}}, Lists: map[string]v1alpha1.List{"l": {Capacity: 2}},
		Labels:      map[string]string{"agones.dev/sdk-a": "b"},
		Annotations: map[string]string{"agones.dev/sdk-most": strings.Repeat("x", reportapi.MaxAnnotationBytes)},
	}
	silent := server(capacity, func(s *v1alpha1.Server) { s.Status.Players = &v1alpha1.PlayersStatus{Capacity: 16} })
	own := report(players(9))
	late := report(players(9), func(r *reportapi.Report) { r.Sequence = 4 })
	for name, c := range map[string]struct {
		server *v1alpha1.Server
		podUID string
		last   *said
		want   *reportapi.Game
	}{
		"out of the status":                       {s, "pod-1", nil, ofStatus},
		"out of the memory":                       {s, "pod-1", own, &own.report.Game},
		"out of the status, which is newer":       {s, "pod-1", late, ofStatus},
		"nothing of another Pod in the status":    {s, "pod-2", nil, nil},
		"nothing of another Pod in the memory":    {s, "pod-2", own, nil},
		"nothing where nothing was ever reported": {server(unreported), "pod-1", nil, nil},
		"no players where nobody counted them":    {silent, "pod-1", nil, &reportapi.Game{State: v1alpha1.GameReady}},
	} {
		got, _ := restored(c.server, c.podUID, c.last)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnswer(t *testing.T) {
	started := noon.Add(time.Hour)
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{
			{Name: "helper"}, {Name: "game", Ports: []corev1.ContainerPort{{ContainerPort: 7777, HostPort: 7001, Protocol: corev1.ProtocolUDP}}},
		}},
		Status: corev1.PodStatus{PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{
			{Name: "helper", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: noon}}}},
			{Name: "game", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: started}}}},
		}},
	}
	s := server(func(s *v1alpha1.Server) {
		s.CreationTimestamp = metav1.Time{Time: noon}
		s.Annotations = map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: "{}"}
		s.Labels = map[string]string{"l": "m"}
		s.Spec.Players = &v1alpha1.PlayersSpec{Capacity: 16}
		s.Spec.Ports = []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolUDP, Expose: v1alpha1.ExposeHostPort}}
		s.Status.Address = "192.0.2.1"
	})
	want := reportapi.Answer{GameStarted: &started, Unreported: v1alpha1.DeletionAllowed, Server: reportapi.Server{
		Name: "lobby-1", Namespace: "games", UID: "server-1", Generation: 1, CreationTimestamp: noon,
		Labels: map[string]string{"l": "m"}, Annotations: map[string]string{"a": "b"}, State: v1alpha1.ServerReady,
		Address: "192.0.2.1", PodIP: "10.0.0.1", NodeName: "node-1", Capacity: 16,
		Ports: []v1alpha1.ServerPortStatus{{Name: "game", Port: 7001, Protocol: v1alpha1.ServerProtocolUDP}},
	}}
	base := Answer(s, pod, &v1alpha1.GameType{})
	if diff := cmp.Diff(want, base, cmpopts.IgnoreFields(reportapi.Answer{}, "Version")); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if len(base.Version) != 2*versionBytes {
		t.Errorf("the version is %q", base.Version)
	}

	for name, c := range map[string]struct {
		change  func(*v1alpha1.Server, *corev1.Pod)
		changes bool // the version
		want    func(reportapi.Answer) bool
	}{
		"players leave it":     {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Status.Players = &v1alpha1.PlayersStatus{Current: 3} }, false, nil},
		"permissions leave it": {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Status.DeletionAllowed = false }, false, nil},
		"counters leave it": {func(s *v1alpha1.Server, _ *corev1.Pod) {
			s.Status.Counters = map[string]v1alpha1.Counter{"a": {Count: 1, Capacity: 1}}
		}, false, nil},
		"what the game said leaves it": {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Status.Game.Sequence, s.ResourceVersion = 9, "99" }, false, nil},
		"conditions leave it":          {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Status.Conditions = []metav1.Condition{{Type: "Ready"}} }, false, nil},
		"a drain changes it":           {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Spec.Drain = true }, true, func(a reportapi.Answer) bool { return a.Drain && !a.Shutdown }},
		"a deletion changes it": {func(s *v1alpha1.Server, _ *corev1.Pod) { s.DeletionTimestamp = &metav1.Time{Time: noon} }, true, func(a reportapi.Answer) bool {
			return a.Drain && a.Shutdown && a.Server.DeletionTimestamp.Equal(noon)
		}},
		"a stop changes it":        {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Spec.Running = new(false) }, true, func(a reportapi.Answer) bool { return a.Drain && a.Shutdown }},
		"the state changes it":     {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Status.State = v1alpha1.ServerAllocated }, true, nil},
		"an Allocation changes it": {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Status.Allocated = true }, true, func(a reportapi.Answer) bool { return a.Server.Allocated }},
		"the address changes it":   {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Status.Address = "192.0.2.2" }, true, nil},
		"a port changes it":        {func(_ *v1alpha1.Server, p *corev1.Pod) { p.Spec.Containers[1].Ports[0].HostPort++ }, true, nil},
		"a status that isn't written yet says what the Pod says": {func(s *v1alpha1.Server, _ *corev1.Pod) {
			s.Status, s.Spec.Ports[0].Expose = v1alpha1.ServerStatus{}, v1alpha1.ExposeNone
		}, true, func(a reportapi.Answer) bool {
			port := v1alpha1.ServerPortStatus{Name: "game", Port: 7777, Protocol: v1alpha1.ServerProtocolUDP}
			return a.Server.State == v1alpha1.ServerStarting && a.Server.Address == "10.0.0.1" && slices.Equal(a.Server.Ports, []v1alpha1.ServerPortStatus{port})
		}},
		"a label changes it":           {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Labels = map[string]string{"l": "n"} }, true, nil},
		"a game that ended changes it": {func(_ *v1alpha1.Server, p *corev1.Pod) { p.Status.ContainerStatuses[1].State = corev1.ContainerState{} }, true, func(a reportapi.Answer) bool { return a.GameStarted == nil }},
		"when a game ended changes it": {func(_ *v1alpha1.Server, p *corev1.Pod) {
			p.Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Time{Time: noon}}}
		}, true, func(a reportapi.Answer) bool { return a.GameStarted == nil && a.GameEnded.Equal(noon) }},
		"an image that isn't there changes it": {func(_ *v1alpha1.Server, p *corev1.Pod) {
			p.Status.ContainerStatuses[1].State = waiting("ImagePullBackOff")
		}, true, func(a reportapi.Answer) bool { return a.GameStarted == nil && a.GameWaits }},
		"a Pod that is set up isn't waited for": {func(_ *v1alpha1.Server, p *corev1.Pod) {
			p.Status.ContainerStatuses[1].State = waiting("ContainerCreating")
		}, true, func(a reportapi.Answer) bool { return a.GameStarted == nil && !a.GameWaits }},
		"nor is a game that ran": {func(_ *v1alpha1.Server, p *corev1.Pod) {
			p.Status.ContainerStatuses[1].State, p.Status.ContainerStatuses[1].RestartCount = waiting("ErrImagePull"), 1
		}, true, func(a reportapi.Answer) bool { return a.GameStarted == nil && !a.GameWaits }},
		"what holds for a game that says nothing changes it": {func(s *v1alpha1.Server, _ *corev1.Pod) {
			s.Spec.Deletion.Unreported = v1alpha1.DeletionDenied
		}, true, func(a reportapi.Answer) bool { return a.Unreported == v1alpha1.DeletionDenied }},
		"its default leaves it":        {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Spec.Deletion.Unreported = v1alpha1.DeletionAllowed }, false, nil},
		"gameContainer names the game": {func(s *v1alpha1.Server, _ *corev1.Pod) { s.Spec.GameContainer = "helper" }, true, func(a reportapi.Answer) bool { return a.GameStarted.Equal(noon) }},
	} {
		t.Run(name, func(t *testing.T) {
			changed, its := s.DeepCopy(), pod.DeepCopy()
			c.change(changed, its)
			got := Answer(changed, its, &v1alpha1.GameType{})
			if (got.Version != base.Version) != c.changes {
				t.Errorf("version %s after %s, want it to change: %t", got.Version, base.Version, c.changes)
			}
			if c.want != nil && !c.want(got) {
				t.Errorf("answer = %+v", got)
			}
		})
	}
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func TestAGameTypeThatSkipsFullServersTellsTheirSidecars(t *testing.T) {
	of := &v1alpha1.GameType{}
	before := Answer(server(), &corev1.Pod{}, of)
	of.Spec.Service.SkipFull = true
	after := Answer(server(), &corev1.Pod{}, of)
	if before.SkipFull || !after.SkipFull || before.Version == after.Version {
		t.Errorf("it says %t and then %t, in versions %s and %s", before.SkipFull, after.SkipFull, before.Version, after.Version)
	}
}

func TestAnOlderReportIsNotTaken(t *testing.T) {
	type step struct {
		instance, pod string
		sequence      uint64 // 0: it announces itself
		base          string
		after         time.Duration // the first step
		want          bool
	}
	for name, steps := range map[string][]step{
		"processes that announce themselves": {
			{"one", "pod-1", 2, "", 0, true},
			{"one", "pod-1", 1, "one", 0, false},
			{"one", "pod-1", 2, "one", 0, true}, // once more: the answer got lost
			{"two", "pod-1", 0, "one", 0, true},
			{"two", "pod-1", 2, "one", 0, true},
			{"one", "pod-1", 3, "one", 0, false}, // of a process that is gone
			{"two", "pod-1", 3, "one", 0, true},
			{"one", "pod-2", 1, "two", 0, true}, // of another Pod
		},
		"a late one where only the new one is known": {
			{"two", "pod-1", 2, "one", 0, true},
			{"one", "pod-1", 9, "one", time.Second, false},
			{"one", "pod-1", 10, "one", time.Second, false},
			{"two", "pod-1", 3, "one", time.Second, true},
			{"two", "pod-1", 4, "two", time.Minute, true},
			{"one", "pod-1", 11, "two", time.Minute, false},
			{"two", "pod-1", 5, "two", time.Minute, true},
		},
		"a process that another replica knows": {
			{"one", "pod-1", 9, "one", 0, true},
			{"two", "pod-1", 5, "two", time.Minute, true}, // and has written a report of
			{"two", "pod-1", 6, "two", time.Minute, true},
		},
		"a process that announced itself elsewhere": {
			{"one", "pod-1", 9, "one", 0, true},
			{"two", "pod-1", 2, "one", time.Second, false},
			{"two", "pod-1", 3, "one", 2 * time.Second, false},
			{"two", "pod-1", 4, "one", 3 * time.Second, true},
			{"one", "pod-1", 10, "one", 3 * time.Second, false},
			{"two", "pod-1", 5, "one", 3 * time.Second, true},
		},
	} {
		table := newTable()
		for i, step := range steps {
			if step.sequence == 0 {
				table.announce("server-1", step.instance)
				continue
			}
			s := report(func(r *reportapi.Report) { r.Instance, r.Sequence = step.instance, step.sequence })
			s.podUID, s.base, s.at = step.pod, step.base, noon.Add(step.after)
			if got := table.take("server-1", lobby1(), s) != nil; got != step.want {
				t.Errorf("%s, step %d: report %d of %s in %s was taken: %t, want %t", name, i, step.sequence, step.instance, step.pod, got, step.want)
			}
		}
	}
}

// While the Pod isn't ready kubelet's word is waited for where nobody else has one, and after
// that the game's first words for a moment. What a game says itself a held player waits for, and
// of a GameType's also that its sidecar is there.
func TestThatAGameTakesPlayersByDefaultMayWait(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reported, ofType, podReady bool
		want                       time.Duration
	}{
		"silent, its Pod starts":                 {want: startTime},
		"silent, its Pod is ready":               {podReady: true, want: firstWords},
		"it says so, its Pod starts":             {reported: true},
		"it says so, its Pod is ready":           {reported: true, podReady: true},
		"silent, a GameType's":                   {ofType: true},
		"silent, a GameType's, its Pod is ready": {ofType: true, podReady: true},
	} {
		c := change{reason: reasonState, urgent: true, status: &v1alpha1.ServerStatus{
			DeletionAllowed: true, Game: &v1alpha1.GameStatus{State: v1alpha1.GameReady, Reported: test.reported},
		}}
		s := &v1alpha1.Server{}
		if test.ofType {
			s.Labels = map[string]string{wellknown.GameTypeLabel: "lobby"}
		}
		if got := c.byDefault(s, test.podReady); got.urgent != (test.want == 0) || got.patience != test.want {
			t.Errorf("%s: urgent %t, may wait %s, want %s", name, got.urgent, got.patience, test.want)
		}
	}
}
