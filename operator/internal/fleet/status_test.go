package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/fleet/serverbuilder"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

func TestStatusCounts(t *testing.T) {
	f := lobbies()
	setStatus(t0, f, []server{
		has("a", 3), has("b", 4, allocated, outdated), has("c", 0, starting), has("d", 5, byFleet), has("e", 2, deleting),
		has("f", 1, lost), has("g", 1, broken),
	}, plan{}, backoff{})
	f.Status.Conditions = nil
	want := v1alpha1.FleetStatus{
		ObservedGeneration: 3, Replicas: 5, ReadyReplicas: 2, UpdatedReplicas: 4, AllocatedReplicas: 1, DrainingReplicas: 2,
		Players: 16, Capacity: 20, Selector: "dormouse.dev/fleet=lobbies", FirstReadyTime: &metav1.Time{Time: t0},
	}
	if diff := cmp.Diff(want, f.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestConditionReady(t *testing.T) {
	says := func(words string) func(*server) { return func(s *server) { s.message = words } }
	tests := map[string]struct {
		replicas int32
		deleted  bool
		servers  []server
		plan     plan
		backoff  backoff
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		"all are ready": {
			replicas: 2, servers: []server{has("a", 0), has("b", 1, allocated)},
			status: metav1.ConditionTrue, reason: "OK", message: "2 of 2 Servers are ready.",
		},
		"none are asked for": {status: metav1.ConditionTrue, reason: "OK", message: "No Servers are asked for."},
		"Allocated ones are left over": {
			servers: []server{has("a", 0, allocated), has("b", 0, allocated)}, plan: plan{spared: 2},
			status: metav1.ConditionTrue, reason: "OK",
			message: "No Servers are asked for. There are 2 more than asked for, because Allocated Servers stay until their games end.",
		},
		"a new Fleet has none": {
			replicas: 3, plan: plan{create: 3}, status: metav1.ConditionFalse, reason: "ServersMissing", message: "0 of 3 Servers are ready.",
		},
		"the oldest that isn't ready says why": {
			replicas: 3, servers: []server{has("c", 0, starting, says("It boots.")), has("a", 0), has("b", 0, starting, says("No node has room."))},
			status: metav1.ConditionFalse, reason: "ServersMissing", message: "1 of 3 Servers are ready. Server b: No node has room.",
		},
		"the API server refuses": {
			replicas: 2, servers: []server{has("a", 0)}, plan: plan{refused: true},
			backoff: backoff{refusals: 2, refusedUntil: at(4), refusal: "exceeded quota"},
			status:  metav1.ConditionFalse, reason: "ServerRefused",
			message: "1 of 2 Servers are ready. The API server refuses new ones, and is asked again at 12:00:04 UTC: exceeded quota",
		},
		"an old refusal is no news": {
			replicas: 1, servers: []server{has("a", 0)}, backoff: backoff{refusals: 2, refusedUntil: at(4), refusal: "exceeded quota"},
			status: metav1.ConditionTrue, reason: "OK", message: "1 of 1 Servers are ready.",
		},
		"replacements wait": {
			replicas: 2, servers: []server{has("a", 0)}, plan: plan{held: 1}, backoff: backoff{streak: 3, notBefore: at(4)},
			status: metav1.ConditionFalse, reason: "Backoff",
			message: "1 of 2 Servers are ready. Replacements wait until 12:00:04 UTC, because Servers broke or ended early 3 times in a row.",
		},
		"it is being deleted": {
			replicas: 2, deleted: true, servers: []server{has("a", 3, deleting)},
			status: metav1.ConditionFalse, reason: "Draining", message: "The Fleet is being deleted; 1 Server waits for its players to leave.",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := lobbies()
			f.Spec.Replicas = &test.replicas
			if test.deleted {
				f.DeletionTimestamp = &metav1.Time{Time: t0}
			}
			setStatus(t0, f, test.servers, test.plan, test.backoff)
			got := meta.FindStatusCondition(f.Status.Conditions, conditions.Ready)
			want := &metav1.Condition{
				Type: "Ready", Status: test.status, Reason: test.reason, Message: test.message,
				ObservedGeneration: 3, LastTransitionTime: metav1.Time{Time: t0},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNumbersAndWordsAreBounded(t *testing.T) {
	f := lobbies()
	huge := func(s *server) { s.capacity = 1 << 30 }
	setStatus(t0, f, []server{has("a", 1<<30, huge), has("b", 1<<30, huge), has("c", 0, starting, func(s *server) { s.message = strings.Repeat("ä", 5000) })},
		plan{}, backoff{})
	if f.Status.Players != 1<<31-1 || f.Status.Capacity != 1<<31-1 {
		t.Errorf("%d players of %d, want the largest number", f.Status.Players, f.Status.Capacity)
	}
	*f.Spec.Replicas = 3
	setStatus(t0, f, []server{has("c", 0, starting, func(s *server) { s.message = strings.Repeat("ä", 5000) })}, plan{}, backoff{})
	if n := len([]rune(f.Status.Conditions[0].Message)); n > 400 {
		t.Errorf("the message has %d characters", n)
	}
}

func TestPlayersAloneAreWrittenNowAndThen(t *testing.T) {
	base := v1alpha1.FleetStatus{Replicas: 2, Players: 3, Capacity: 20, Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}}
	tests := map[string]struct {
		change func(*v1alpha1.FleetStatus)
		want   bool
	}{
		"players":            {func(s *v1alpha1.FleetStatus) { s.Players = 4 }, true},
		"capacity":           {func(s *v1alpha1.FleetStatus) { s.Capacity = 4 }, true},
		"nothing":            {func(*v1alpha1.FleetStatus) {}, false},
		"players and Ready":  {func(s *v1alpha1.FleetStatus) { s.Players, s.Conditions[0].Status = 4, metav1.ConditionFalse }, false},
		"players and number": {func(s *v1alpha1.FleetStatus) { s.Players, s.ReadyReplicas = 4, 2 }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := *base.DeepCopy()
			test.change(&after)
			if got := onlyPlayersDiffer(&base, &after); got != test.want {
				t.Errorf("only players differ: %t, want %t", got, test.want)
			}
		})
	}
}

func TestEventsTellOfManyServersAtOnce(t *testing.T) {
	one, two := has("a", 0, broken), has("b", 0, ended)
	b := backoff{refusals: 1, refusal: "exceeded quota", notBefore: at(4)}
	got := actionEvents(plan{broken: []*server{&one}, ended: []*server{&two}, held: 1}, outcome{
		created: []string{"g", "c", "d", "e", "f", "h", "i"}, takenBack: []string{"j"},
		drained: []string{"k", "a"}, deleted: []string{"b", "l", "m"}, refused: "exceeded quota",
	}, b)
	want := []kit.Notice{
		{Type: "Normal", Reason: "Created", Action: "ScaleUp", Note: "Created 7 Servers (c, d, e, f, g and 2 more)."},
		{Type: "Normal", Reason: "TakenBack", Action: "ScaleUp", Note: "Took back Server j before their players had left."},
		{Type: "Warning", Reason: "Unhealthy", Action: "Replace", Note: "Replacing what is Unhealthy at 12:00:04 UTC: Server a."},
		{Type: "Normal", Reason: "Ended", Action: "Replace", Note: "Deleted Server b, whose game asked for its end."},
		{Type: "Normal", Reason: "Drained", Action: "ScaleDown", Note: "Drained Server k; each goes when its players have left."},
		{Type: "Normal", Reason: "Deleted", Action: "ScaleDown", Note: "Deleted 2 Servers (l, m)."},
		{Type: "Warning", Reason: "ServerRefused", Action: "ScaleUp", Note: "The API server refuses new Servers: exceeded quota"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	b.refusals++
	if again := actionEvents(plan{}, outcome{refused: "exceeded quota"}, b); len(again) != 0 {
		t.Errorf("the same refusal is told again: %v", again)
	}
	if none := actionEvents(plan{}, outcome{}, b); len(none) != 0 {
		t.Errorf("a pass that did nothing tells %v", none)
	}
}

func TestOnlyChangesThatMatterMakeAPass(t *testing.T) {
	base := func() *v1alpha1.Server {
		s := serverbuilder.Build(lobbies(), templatehash.Of(lobbies().Spec.Template), "lobbies-abcde", places.None)
		s.ResourceVersion = "1"
		s.Status.Players = &v1alpha1.PlayersStatus{Current: 1}
		return s
	}
	tests := map[string]struct {
		change func(*v1alpha1.Server)
		want   bool
	}{
		"nothing but the version": {func(s *v1alpha1.Server) { s.ResourceVersion = "2" }, false},
		"a counter":               {func(s *v1alpha1.Server) { s.Status.Counters = map[string]v1alpha1.Counter{"rooms": {Count: 1}} }, false},
		"a player":                {func(s *v1alpha1.Server) { s.Status.Players.Current = 2 }, true},
		"the state":               {func(s *v1alpha1.Server) { s.Status.State = v1alpha1.ServerReady }, true},
		"its deletion":            {func(s *v1alpha1.Server) { s.DeletionTimestamp = &metav1.Time{Time: t0} }, true},
		"another owner":           {func(s *v1alpha1.Server) { s.OwnerReferences = nil }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := base()
			test.change(after)
			if got := differ(base(), after); got != test.want {
				t.Errorf("it matters: %t, want %t", got, test.want)
			}
		})
	}
}

func TestObserveReadsWhatTheGameSaid(t *testing.T) {
	state := func(status v1alpha1.ServerStatus) *v1alpha1.Server { return &v1alpha1.Server{Status: status} }
	game := func(state v1alpha1.GameState) *v1alpha1.GameStatus {
		return &v1alpha1.GameStatus{State: state, Since: &metav1.Time{Time: t0}, Reported: true}
	}
	gone := func(s *v1alpha1.Server, when time.Time) *v1alpha1.Server {
		s.DeletionTimestamp = &metav1.Time{Time: when}
		return s
	}
	tests := map[string]struct {
		object *v1alpha1.Server
		want   server
	}{
		"Allocated":                   {state(v1alpha1.ServerStatus{State: v1alpha1.ServerAllocated}), server{state: "Allocated", allocated: true}},
		"Reserved":                    {state(v1alpha1.ServerStatus{State: v1alpha1.ServerReady, Game: game(v1alpha1.GameReserved)}), server{state: "Ready", allocated: true, reported: true}},
		"ends after it was Allocated": {state(v1alpha1.ServerStatus{State: v1alpha1.ServerAllocated, Game: game(v1alpha1.GameShutdown)}), server{state: "Allocated", shutdown: true, reported: true}},
		"ends because it is deleted":  {gone(state(v1alpha1.ServerStatus{Game: game(v1alpha1.GameShutdown)}), at(-1)), server{deleting: true, reported: true}},
		"is deleted because it ends":  {gone(state(v1alpha1.ServerStatus{Game: game(v1alpha1.GameShutdown)}), at(1)), server{deleting: true, shutdown: true, reported: true}},
		"ends because it was stopped": {
			func() *v1alpha1.Server {
				s := state(v1alpha1.ServerStatus{Game: game(v1alpha1.GameShutdown)})
				s.Spec.Running = new(false)
				return s
			}(), server{reported: true},
		},
		"ended because it was stopped, and is wanted again": {
			func() *v1alpha1.Server {
				s := state(v1alpha1.ServerStatus{Game: game(v1alpha1.GameShutdown)})
				s.Status.Game.ShutdownSeen = true
				return s
			}(), server{reported: true},
		},
		"Unhealthy":                   {state(v1alpha1.ServerStatus{State: v1alpha1.ServerUnhealthy}), server{state: "Unhealthy", unhealthy: true}},
		"Unhealthy, though it drains": {state(v1alpha1.ServerStatus{State: v1alpha1.ServerDraining, Conditions: conditionOf("Healthy", "False", "Unhealthy")}), server{state: "Draining", unhealthy: true}},
		"on a node that doesn't answer": {
			state(v1alpha1.ServerStatus{State: v1alpha1.ServerUnhealthy, Conditions: conditionOf("Ready", "False", "NodeLost")}),
			server{state: "Unhealthy", lost: true, message: "why", changed: t0},
		},
		"Ready": {
			state(v1alpha1.ServerStatus{State: v1alpha1.ServerReady, Conditions: conditionOf("Ready", "True", "OK")}),
			server{state: "Ready", ready: true, changed: t0},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.place = places.None
			if diff := cmp.Diff(test.want, observe(test.object), cmp.AllowUnexported(server{})); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
		})
	}
}

func conditionOf(kind string, status metav1.ConditionStatus, reason string) []metav1.Condition {
	return []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: "why", LastTransitionTime: metav1.Time{Time: t0}}}
}

// Only a wake's first Servers may be written of later. What else is new is written at once.
func TestWhatIsNewInAFleetBesideAStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after []server
		plan          plan
		backoff       backoff
		fresh         bool
		want          bool
	}{
		"the first Server starts":            {after: []server{has("a", 0, starting)}, want: true},
		"a Fleet that never had a status":    {fresh: true, after: []server{has("a", 0, starting)}},
		"the first Server is ready":          {after: []server{has("a", 0)}},
		"another Server starts":              {before: []server{has("a", 0, starting)}, after: []server{has("a", 0, starting), has("b", 0, starting)}},
		"one starts while an old one drains": {before: []server{has("o", 1, byFleet)}, after: []server{has("o", 1, byFleet), has("a", 0, starting)}},
		"the old one has gone meanwhile":     {before: []server{has("o", 1, byFleet)}, after: []server{has("a", 0, starting)}},
		"the API server refuses the next":    {after: []server{has("a", 0, starting)}, plan: plan{create: 1}, backoff: backoff{refusal: "quota"}},
		"one of an earlier template starts":  {after: []server{has("a", 0, starting, outdated)}},
		"nothing starts":                     {},
	} {
		f := lobbies()
		if !c.fresh {
			setStatus(t0, f, c.before, plan{}, backoff{})
		}
		before := f.Status.DeepCopy()
		setStatus(t0, f, c.after, c.plan, c.backoff)
		if got := onlyStarts(before, &f.Status); got != c.want {
			t.Errorf("%s: only a start is new: %t, want %t (%+v)", name, got, c.want, f.Status)
		}
	}
}

// lobbies is a Fleet with something of its own everywhere.
func lobbies() *v1alpha1.Fleet {
	return &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobbies", UID: "fleet-1", Generation: 3},
		Spec: v1alpha1.FleetSpec{
			Replicas:   new(int32(2)),
			Scheduling: v1alpha1.SchedulingPacked,
			Template: v1alpha1.ServerTemplate{
				Metadata: v1alpha1.TemplateMetadata{Labels: map[string]string{"mode": "duel"}, Annotations: map[string]string{"map": "atoll"}},
				Spec: v1alpha1.ServerSpec{
					Drain: true,
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "lobby"}},
						Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}},
					},
				},
			},
		},
	}
}
