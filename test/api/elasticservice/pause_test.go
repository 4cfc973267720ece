package elasticservice_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

func autoscalerReady(status metav1.ConditionStatus, reason string) check {
	return hasCondition(conditions.AutoscalerReady, status, reason)
}

// pauses says which ScaledObject the status names.
func pauses(name string) check {
	return func(es *v1alpha1.ElasticService) error {
		if got := es.Status.PausedScaledObject; got != name {
			return fmt.Errorf("pausedScaledObject is %q, want %q", got, name)
		}
		return nil
	}
}

// beside is a service that sleeps and wakes beside an autoscaler. Each wake has servers of its own.
type beside struct {
	*world
	name    string
	players *playerCount
	wakes   [][]gameServer
}

// beside makes a service that is awake, with nine players on each server.
func (w *world) beside(name string, replicas int, change ...func(*v1alpha1.ElasticService)) *beside {
	w.t.Helper()
	const wakes = 3
	b := &beside{world: w, name: name}
	var all []gameServer
	for range wakes {
		var servers []gameServer
		for range replicas {
			servers = append(servers, newServer())
		}
		b.wakes = append(b.wakes, servers)
		all = append(all, servers...)
	}
	b.players = countPlayers(w.t, all...)
	b.players.is(9)
	w.deployment(name, int32(replicas))
	w.service(name)
	w.elastic(name, append(change, sleepAfter(time.Second), byPlayers(1))...)
	b.up()
	return b
}

// up has the servers of the next wake come up.
func (b *beside) up() {
	b.t.Helper()
	b.servers(b.name, b.wakes[0]...)
	b.wakes = b.wakes[1:]
	b.want(b.name, promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
}

// sleep has the service fall asleep.
func (b *beside) sleep() *v1alpha1.ElasticService {
	b.t.Helper()
	b.players.is(0)
	es := b.want(b.name, afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	b.servers(b.name)
	return es
}

// wakeUp wakes it again, by a client.
func (b *beside) wakeUp() {
	b.t.Helper()
	b.wake(0, resolverToken(b.t), b.name)
	b.players.is(9)
	b.up()
}

func TestKEDAIsPausedFromTheBeginningOfASleepToTheWake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scaledObject("arena", 2)
	w.playKEDA("arena")
	b := w.beside("arena", 2, byKEDA)
	w.want("arena", promptly, autoscalerReady(metav1.ConditionTrue, reasons.OK), pauses(""))
	w.wantAnnotations("arena", nil)

	for sleep := range 2 {
		since := w.latest()
		es := b.sleep()
		w.wantAnnotations("arena", pausedFor(es))
		so, err := w.readScaledObject(t.Context(), "arena")
		if err != nil {
			t.Fatal(err)
		}
		zero := w.must("the target at 0", promptly, since, toReplicas("arena", 0))
		if made := revisionOf(t, so); made > zero.revision {
			t.Errorf("sleep %d: it was paused at revision %d, after the target went to 0 at %d", sleep, made, zero.revision)
		}
		w.stays("arena", time.Second, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), pauses("arena"))

		// Whoever has its manifest in a repository applies it again and again.
		w.applyAs("gitops", manifest("arena", 2))
		w.wantAnnotations("arena", pausedFor(es))
		w.stays("arena", 2*time.Second, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), ready)
		if n := w.replicas("arena"); n != 0 {
			t.Errorf("sleep %d: the target has %d replicas, want 0", sleep, n)
		}

		b.wakeUp()
		w.wantAnnotations("arena", nil)
		w.want("arena", promptly, pauses(""), ready)
		if n := w.replicas("arena"); n != 2 {
			t.Errorf("sleep %d: woken to %d replicas, want 2", sleep, n)
		}
	}
}

func TestAPauseOfSomebodyElsesIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, theirs := range map[string]map[string]string{
		"paused as it is":    {paused: "true"},
		"paused at a number": {pausedReplicas: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.scaledObject("lobby", 1, annotated(theirs))
			b := w.beside("lobby", 1, byKEDA)
			w.want("lobby", promptly, autoscalerReady(metav1.ConditionTrue, reasons.PausedByOther))
			b.sleep()
			w.wantAnnotations("lobby", theirs)
			b.wakeUp()
			w.want("lobby", promptly, pauses(""), ready)
			w.wantAnnotations("lobby", theirs)
		})
	}
}

// Their pause lasts longer than the sleep in which they made it.
func TestAPauseThatSomebodyElseMakesDuringASleepOutlastsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scaledObject("lobby", 1)
	b := w.beside("lobby", 1, byKEDA)
	es := b.sleep()
	w.wantAnnotations("lobby", pausedFor(es))
	theirs := manifest("lobby", 1)
	theirs.SetAnnotations(map[string]string{paused: "true"})
	w.applyAs("gitops", theirs)
	b.wakeUp()
	w.wantAnnotations("lobby", map[string]string{paused: "true"})
	w.want("lobby", promptly, autoscalerReady(metav1.ConditionTrue, reasons.PausedByOther))
}

func TestASleepThatIsCancelledEndsThePause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scaledObject("lobby", 1)
	b := w.beside("lobby", 1, byKEDA)
	since := w.latest()
	b.players.is(0)
	es := w.want("lobby", afterSettling, inPhase(v1alpha1.PhaseFallingAsleep, v1alpha1.ModeProxy))
	w.wantAnnotations("lobby", pausedFor(es))
	w.wake(1, resolverToken(t), "lobby")
	b.players.is(9)
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.wantAnnotations("lobby", nil)
	w.want("lobby", promptly, pauses(""))
	if n := w.count(since, writesTo("lobby")); n > 0 {
		t.Errorf("the target was written %d times, want none", n)
	}
}

func TestADeletionDuringTheSleepEndsThePause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scaledObject("lobby", 2)
	w.deployment("lobby", 0)
	w.service("lobby")
	es := w.elastic("lobby", byKEDA)
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.wantAnnotations("lobby", pausedFor(es))
	w.delete("lobby")
	w.wantAnnotations("lobby", nil)
	fixture.Eventually(t, promptly, "the target is awake", func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := w.read(ctx, "lobby", d); err != nil {
			return err
		}
		if n := ptr.Deref(d.Spec.Replicas, -1); n != 2 {
			return fmt.Errorf("it has %d replicas, want the ScaledObject's minReplicaCount", n)
		}
		return nil
	})
	w.servers("lobby", newServer())
	w.wantGone("lobby", afterLingering)
	w.wantAnnotations("lobby", nil)
}

// Where the Service is gone, too, nothing waits for the target.
func TestADeletionThatWaitsForNothingEndsThePause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scaledObject("lobby", 1)
	w.deployment("lobby", 0)
	public := w.service("lobby")
	es := w.elastic("lobby", byKEDA)
	w.wantAnnotations("lobby", pausedFor(es))
	if err := w.c.Delete(t.Context(), public); err != nil {
		t.Fatal(err)
	}
	w.delete("lobby")
	w.wantGone("lobby", promptly)
	w.wantAnnotations("lobby", nil)
}

func TestATargetThatAPersonPutsToZeroStaysThereBesideKEDA(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scaledObject("lobby", 1)
	w.awake("lobby", 1, byKEDA)
	w.scaleLobby(0)
	w.servers("lobby")
	es := w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), pauses("lobby"))
	w.wantAnnotations("lobby", pausedFor(es))
}

// An operator may end between any two writes. Whoever is next brings the pause to what it should be.
func TestThePauseIsMendedWhateverItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	so := w.scaledObject("lobby", 1)
	es := w.elastic("lobby", byKEDA)
	left := func(uid, owner string) {
		pause := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}}
		pause.SetName("lobby")
		pause.SetUID(so.GetUID())
		pause.SetAnnotations(map[string]string{paused: "true", pausedBy: uid})
		w.applyAs(owner, pause)
	}
	const ours = "dormouse-autoscaler"
	w.deployment("lobby", 1)
	w.service("lobby")
	w.servers("lobby", newServer())
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	left(string(es.UID), ours)
	w.wantAnnotations("lobby", nil)
	left("of an ElasticService that is gone", ours)
	w.wantAnnotations("lobby", nil)
	// As it was brought from another cluster, or restored.
	left("of an ElasticService elsewhere", "kubectl")
	w.wantAnnotations("lobby", nil)

	w.scaleLobby(0)
	w.servers("lobby")
	w.wantAnnotations("lobby", pausedFor(es))
	now, err := w.readScaledObject(t.Context(), "lobby")
	if err != nil {
		t.Fatal(err)
	}
	w.edit(now, func() { now.SetAnnotations(nil) })
	w.wantAnnotations("lobby", pausedFor(es))
}

// It is the status that knows which one is paused.
func TestAScaledObjectThatIsNamedNoMoreIsReleased(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.ElasticService){
		"another one is named": func(es *v1alpha1.ElasticService) { es.Spec.Autoscaler.Name = "other" },
		"none is named":        func(es *v1alpha1.ElasticService) { es.Spec.Autoscaler = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.scaledObject("lobby", 1)
			w.scaledObject("other", 1, func(so *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(so.Object, "lobby", "spec", "scaleTargetRef", "name")
			})
			w.deployment("lobby", 0)
			w.service("lobby")
			es := w.elastic("lobby", byKEDA)
			w.wantAnnotations("lobby", pausedFor(es))
			w.edit(es, func() { change(es) })
			w.wantAnnotations("lobby", nil)
			if es.Spec.Autoscaler == nil {
				w.want("lobby", promptly, pauses(""), autoscalerReady(metav1.ConditionTrue, reasons.NotNeeded))
				return
			}
			w.want("lobby", promptly, pauses("other"))
			w.wantAnnotations("other", pausedFor(es))
		})
	}
}

// A sleep whose endpoints can't be written doesn't begin.
func TestNothingIsPausedForASleepThatIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scaledObject("lobby", 1)
	b := w.beside("lobby", 1, byKEDA)
	// The resolvers' slice may have to be made yet: the service was never asleep.
	w.refuse("discovery.k8s.io", "v1", "endpointslices", admissionv1.OperationAll, func(ctx context.Context) error {
		var list discoveryv1.EndpointSliceList
		if err := w.c.List(ctx, &list, client.InNamespace(w.ns)); err != nil || len(list.Items) == 0 {
			return err
		}
		return w.c.Patch(ctx, &list.Items[0], client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`)), client.DryRunAll)
	})
	b.players.is(0)
	w.want("lobby", afterSettling, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.Refused), inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.stays("lobby", 3*time.Second, pauses(""))
	w.wantAnnotations("lobby", nil)
}

// Nobody else would end the pause of a service whose target an older one has by now.
func TestWhoLosesItsTargetEndsItsPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("heir", 0)
	w.service("heir")
	heir := w.elastic("heir")
	w.scaledObject("lobby", 1)
	fixture.Eventually(t, promptly, "the next second", func(context.Context) error {
		if now := time.Now(); now.Before(heir.CreationTimestamp.Add(time.Second)) {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
	es := w.beside("lobby", 1, byKEDA).sleep()
	w.wantAnnotations("lobby", pausedFor(es))
	w.edit(heir, func() { heir.Spec.ScaleTargetRef.Name = "lobby" })
	w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.TargetTaken))
	w.wantAnnotations("lobby", pausedFor(es)) // the target sleeps on
	w.scaleLobby(1)
	w.wantAnnotations("lobby", nil)
}
