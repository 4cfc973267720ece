package elasticservice_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// awake makes a service that is awake with servers whose players are counted;
// nine players are on each.
func (w *world) awake(name string, replicas int, change ...func(*v1alpha1.ElasticService)) *playerCount {
	w.t.Helper()
	players := w.begin(name, replicas, change...)
	w.want(name, promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	return players
}

// begin makes such a service, of which it isn't known whether it gets ready.
func (w *world) begin(name string, replicas int, change ...func(*v1alpha1.ElasticService)) *playerCount {
	w.t.Helper()
	var servers []gameServer
	for range replicas {
		servers = append(servers, newServer())
	}
	players := countPlayers(w.t, servers...)
	players.is(9)
	w.deployment(name, int32(replicas))
	w.service(name)
	w.elastic(name, change...)
	w.servers(name, servers...)
	return players
}

func TestAnIdleServiceFallsAsleepInTheOrderThatLosesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Busy from 4 players on, of three servers together.
	players := w.awake("arena", 3, sleepAfter(time.Second), byPlayers(4))
	players.is(2)
	w.want("arena", promptly, hasCondition(conditions.IdleSignal, metav1.ConditionTrue, reasons.OK),
		hasCondition(conditions.TriggersHealthy, metav1.ConditionTrue, reasons.OK))
	w.stays("arena", 4*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))

	// The sum is below the threshold now.
	busy := w.latest()
	players.is(1)
	falling := w.must("FallingAsleep", promptly, busy, toPhase("arena", v1alpha1.PhaseFallingAsleep))
	proxied := w.must("resolvers that take clients", promptly, busy, toEndpoints("arena", resolversAre(takesClients)))
	if proxied.revision > falling.revision {
		t.Errorf("the resolvers take clients from revision %d, after FallingAsleep at %d", proxied.revision, falling.revision)
	}
	asleep := w.must("Asleep", afterSettling, falling.revision, toPhase("arena", v1alpha1.PhaseAsleep))
	zero := w.must("the target at 0", promptly, falling.revision, toReplicas("arena", 0))
	if zero.revision < asleep.revision {
		t.Errorf("the target went to 0 at revision %d, before the sleep was committed at %d", zero.revision, asleep.revision)
	}
	if settled := asleep.at.Sub(falling.at); settled < 2500*time.Millisecond {
		t.Errorf("FallingAsleep lasted %s, want the 3s that kube-proxy may need", settled)
	}
	w.servers("arena")
	es := w.want("arena", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	if es.Status.ReplicasBeforeSleep != 3 || es.Status.LastSleepTime == nil {
		t.Errorf("replicasBeforeSleep is %d and lastSleepTime %v, want 3 and a time", es.Status.ReplicasBeforeSleep, es.Status.LastSleepTime)
	}
	w.wantEndpoints("arena", promptly, resolversAre(takesClients))

	w.wake(0, resolverToken(t), "arena")
	if n := w.replicas("arena"); n != 3 {
		t.Errorf("woken to %d replicas, want the 3 from before", n)
	}
}

func TestASleepWaitsUntilEachResolverKnowsOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster.resolvers.change(w.ns, func(b *behaviour) { b.phase = v1alpha1.PhaseAwake })
	players := w.awake("lobby", 1, sleepAfter(time.Second), byPlayers(1))
	players.is(0)
	w.want("lobby", afterSettling, inPhase(v1alpha1.PhaseFallingAsleep, v1alpha1.ModeProxy))
	w.stays("lobby", 5*time.Second, inPhase(v1alpha1.PhaseFallingAsleep, v1alpha1.ModeProxy))
	cluster.resolvers.change(w.ns, func(b *behaviour) { b.phase = "" })
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
}

func TestAClientCancelsASleepThatHasBegun(t *testing.T) {
	t.Parallel()
	for name, come := range map[string]func(*world, *playerCount){
		"by a wake call": func(w *world, players *playerCount) {
			if got := w.wake(1, resolverToken(w.t), "lobby"); got.Phase != string(v1alpha1.PhaseAwake) || got.Replicas != 2 {
				w.t.Errorf("answered %+v, want Awake with 2 replicas", got)
			}
			players.is(1)
		},
		"by a session through a resolver":   func(w *world, _ *playerCount) { w.clients(1, 1, 0) },
		"by a client in a resolver's queue": func(w *world, _ *playerCount) { w.clients(0, 0, 1) },
		"by a player on a server":           func(_ *world, players *playerCount) { players.is(1) },
		"by sleepAfter 0s": func(w *world, _ *playerCount) {
			es := &v1alpha1.ElasticService{}
			if err := w.read(w.t.Context(), "lobby", es); err != nil {
				w.t.Fatal(err)
			}
			w.edit(es, func() { sleepAfter(0)(es) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			players := w.awake("lobby", 2, sleepAfter(time.Second), byPlayers(1))
			since := w.latest()
			players.is(0)
			falling := w.must("FallingAsleep", afterSettling, since, toPhase("lobby", v1alpha1.PhaseFallingAsleep))
			come(w, players)
			w.must("Awake again", promptly, falling.revision, toPhase("lobby", v1alpha1.PhaseAwake))
			w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
			if name != "by a wake call" {
				w.stays("lobby", 4*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
			}
			if n := w.count(since, writesTo("lobby")); n > 0 {
				t.Errorf("the target was written %d times, want none", n)
			}
		})
	}
}

// A client who comes in the moment when the target goes to zero has it scaled up
// again, while the server from before is about to be ended and doesn't look so. That may
// last: a controller's watch was seen to be 20 seconds late.
func TestAServerThatMayBeEndedGetsNobody(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"it is ended, and another one comes": false, "it stays": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			old := newServer()
			players := countPlayers(t, old)
			players.is(9)
			deployment := w.deployment("lobby", 1)
			set := w.replicaSet(deployment)
			old.pod = w.podOf(set)
			starting := w.podOf(set) // has no address, and is in no slice
			w.service("lobby", selectorless)
			w.elastic("lobby", sleepAfter(time.Second), byPlayers(1))
			w.servers("lobby", old)
			w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))

			since := w.latest()
			players.is(0)
			falling := w.must("FallingAsleep", afterSettling, since, toPhase("lobby", v1alpha1.PhaseFallingAsleep))
			w.must("the target at 0", afterSettling, falling.revision, toReplicas("lobby", 0))
			w.wake(0, resolverToken(t), "lobby")
			waking := w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
			want := slices.Sorted(slices.Values([]types.UID{old.pod.UID, starting.UID}))
			if got := waking.Status.PodsBeforeSleep; !slices.Equal(got, want) {
				t.Errorf("podsBeforeSleep is %v, want %v", got, want)
			}
			w.wake(0, resolverToken(t), "lobby")
			w.stays("lobby", 8*time.Second, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
			w.want("lobby", promptly, hasCondition(conditions.ServerUp, metav1.ConditionUnknown, reasons.PodsUnsettled))
			players.is(1)
			if !stays {
				w.remove(old.pod)
				next := newServer()
				next.pod = w.podOf(set)
				w.servers("lobby", next)
				w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
				return
			}
			// One controller after the other takes in the zero and the wake.
			for _, replicas := range []int32{0, 1} {
				w.edit(set, func() { set.Spec.Replicas = new(replicas) })
			}
			w.observed(deployment)
			w.stays("lobby", 2*time.Second, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
			w.observed(set)
			es := w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
			if got := es.Status.PodsBeforeSleep; slices.Contains(got, old.pod.UID) {
				t.Errorf("podsBeforeSleep is %v once it is known that the server stays", got)
			}
		})
	}
}

// replicaSet is what a Deployment's controller makes of it.
func (w *world) replicaSet(d *appsv1.Deployment) *appsv1.ReplicaSet {
	w.t.Helper()
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name + "-1", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec:       appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	w.create(set)
	w.observed(d)
	w.observed(set)
	return set
}

// podOf makes a pod of a ReplicaSet.
func (w *world) podOf(set *appsv1.ReplicaSet) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: set.Name + "-", Labels: set.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: set.Spec.Template.Spec,
	}
	w.create(pod)
	return pod
}

// observed has the controller of a Deployment or a ReplicaSet tell that it has done what is
// asked of it.
func (w *world) observed(o client.Object) {
	w.t.Helper()
	if err := w.read(w.t.Context(), o.GetName(), o); err != nil {
		w.t.Fatal(err)
	}
	switch o := o.(type) {
	case *appsv1.Deployment:
		o.Status.ObservedGeneration, o.Status.Replicas = o.Generation, *o.Spec.Replicas
	case *appsv1.ReplicaSet:
		o.Status.ObservedGeneration, o.Status.Replicas = o.Generation, *o.Spec.Replicas
	}
	if err := w.c.Status().Update(w.t.Context(), o); err != nil {
		w.t.Fatalf("write the status of %T %s: %v", o, o.GetName(), err)
	}
}

// remove deletes an object at once.
func (w *world) remove(o client.Object) {
	w.t.Helper()
	if err := w.c.Delete(w.t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		w.t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

func TestATriggerThatCannotBeReadKeepsTheServiceAwake(t *testing.T) {
	t.Parallel()
	var followed bool
	elsewhere := newServer()
	other := countPlayers(t, elsewhere)
	other.answers(func(w http.ResponseWriter, _ *http.Request) {
		followed = true
		fmt.Fprint(w, `{"players":{"online":0}}`)
	})
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) }
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"status 500": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"players":{"online":0}}`, 500) }, "answered 500"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, fmt.Sprintf("http://%s:%d/status?full=1", elsewhere.address, triggerPort), http.StatusFound)
		}, "answered 302"},
		"not JSON":          {text("<html>0</html>"), "not JSON"},
		"nothing":           {text(""), "not JSON"},
		"no such field":     {text(`{"players":{}}`), "/players/online"},
		"words":             {text(`{"players":{"online":"none"}}`), "no number"},
		"null":              {text(`{"players":{"online":null}}`), "no number"},
		"a huge body":       {text(`{"players":{"online":0},"x":"` + strings.Repeat("x", 80<<10) + `"}`), "more than 65536 bytes"},
		"silence":           {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "ask the pod"},
		"a negative number": {text(`{"players":{"online":-1}}`), "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			players := w.awake("lobby", 1, sleepAfter(time.Second), byPlayers(1))
			since := w.latest()
			players.answers(c.answer)
			w.want("lobby", promptly, hasCondition(conditions.TriggersHealthy, metav1.ConditionFalse, reasons.TriggerUnreadable),
				func(es *v1alpha1.ElasticService) error {
					if m := meta.FindStatusCondition(es.Status.Conditions, conditions.TriggersHealthy).Message; !strings.Contains(m, c.want) {
						return fmt.Errorf("the message is %q, want %q in it", m, c.want)
					}
					return nil
				})
			asked := players.asked.Load()
			fixture.Eventually(t, promptly, "the trigger is asked on", func(context.Context) error {
				if n := players.asked.Load() - asked; n < 3 {
					return fmt.Errorf("%d times", n)
				}
				return nil
			})
			if n := w.count(since, toPhase("lobby", v1alpha1.PhaseFallingAsleep)); n > 0 || w.replicas("lobby") != 1 {
				t.Errorf("it fell asleep %d times and has %d replicas, want never and 1", n, w.replicas("lobby"))
			}
			if followed {
				t.Error("the redirect was followed")
			}
			players.is(0)
			w.want("lobby", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
		})
	}
}
