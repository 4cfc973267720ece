package elasticservice_test

import (
	"context"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

func newDeployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// hpa is the HorizontalPodAutoscaler lobby, of a Deployment.
func (w *world) hpa(deployment string, least, most int32) *autoscalingv2.HorizontalPodAutoscaler {
	w.t.Helper()
	h := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "lobby"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment},
			MinReplicas:    new(least), MaxReplicas: most,
		},
	}
	w.create(h)
	return h
}

func byHPA(es *v1alpha1.ElasticService) {
	es.Spec.Autoscaler = &v1alpha1.Autoscaler{Kind: v1alpha1.AutoscalerHPA, Name: "lobby"}
}

func TestAWakeAsksForReplicasWithinTheAutoscalersBounds(t *testing.T) {
	t.Parallel()
	least := func(n int32) func(*v1alpha1.ElasticService) {
		return func(es *v1alpha1.ElasticService) { es.Spec.MinReplicas = &n }
	}
	for name, c := range map[string]struct {
		autoscaler func(*world)
		change     []func(*v1alpha1.ElasticService)
		want       int32
	}{
		"an HPA's minReplicas": {
			func(w *world) { w.hpa("lobby", 3, 5) }, []func(*v1alpha1.ElasticService){byHPA}, 3,
		},
		"an HPA's maxReplicas": {
			func(w *world) { w.hpa("lobby", 1, 2) }, []func(*v1alpha1.ElasticService){byHPA, least(4)}, 2,
		},
		"a number between them": {
			func(w *world) { w.hpa("lobby", 1, 9) }, []func(*v1alpha1.ElasticService){byHPA, least(4)}, 4,
		},
		"a ScaledObject's minReplicaCount": {
			func(w *world) { w.scaledObject("lobby", 3) }, []func(*v1alpha1.ElasticService){byKEDA}, 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.autoscaler(w)
			w.deployment("lobby", 0)
			w.service("lobby")
			w.elastic("lobby", c.change...)
			w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy), autoscalerReady(metav1.ConditionTrue, reasons.OK))
			for replica := range cluster.operators { // the leader, and one that isn't
				w.wake(replica, resolverToken(t), "lobby")
				if n := w.replicas("lobby"); n != c.want {
					t.Errorf("woken to %d replicas by operator %d, want %d", n, replica, c.want)
				}
				w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
				w.scaleLobby(0)
				w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
			}
		})
	}
}

// A service that KEDA or an HPA would wake again at once had better not sleep.
func TestAServiceStaysAwakeWhoseAutoscalerCantRest(t *testing.T) {
	t.Parallel()
	set := func(field string, value any) func(*world) {
		return func(w *world) {
			so, err := w.readScaledObject(w.t.Context(), "lobby")
			if err != nil {
				w.t.Fatal(err)
			}
			w.edit(so, func() { _ = unstructured.SetNestedField(so.Object, value, "spec", field) })
		}
	}
	for name, c := range map[string]struct {
		setUp  func(*world)
		by     func(*v1alpha1.ElasticService)
		reason string
		mend   func(*world)
	}{
		"no ScaledObject": {
			(*world).useKEDA, byKEDA, reasons.AutoscalerNotFound,
			func(w *world) { w.scaledObject("lobby", 1) },
		},
		"a ScaledObject of another target": {
			func(w *world) {
				w.scaledObject("lobby", 1, func(so *unstructured.Unstructured) {
					_ = unstructured.SetNestedField(so.Object, "other", "spec", "scaleTargetRef", "name")
				})
			}, byKEDA, reasons.AutoscalerOfOther,
			set("scaleTargetRef", map[string]any{"name": "lobby"}),
		},
		"a ScaledObject that scales to zero": {
			func(w *world) { w.scaledObject("lobby", 0) }, byKEDA, reasons.AutoscalerScalesToZero,
			set("minReplicaCount", int64(1)),
		},
		"a ScaledObject that somebody holds open": {
			func(w *world) { w.scaledObject("lobby", 1, annotated(map[string]string{paused: "false"})) }, byKEDA, reasons.AutoscalerUnpausable,
			func(w *world) {
				so, err := w.readScaledObject(w.t.Context(), "lobby")
				if err != nil {
					w.t.Fatal(err)
				}
				w.edit(so, func() { so.SetAnnotations(nil) })
			},
		},
		"no HPA": {
			asIs[*world], byHPA, reasons.AutoscalerNotFound,
			func(w *world) { w.hpa("lobby", 1, 2) },
		},
		"an HPA of another target": {
			func(w *world) { w.hpa("other", 1, 2) }, byHPA, reasons.AutoscalerOfOther,
			edits(func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.ScaleTargetRef.Name = "lobby" }),
		},
		"an HPA of a ScaledObject": {
			func(w *world) {
				h := w.hpa("lobby", 1, 2)
				w.edit(h, func() {
					h.OwnerReferences = []metav1.OwnerReference{{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Name: "its-owner", UID: "u", Controller: new(true)}}
				})
			}, byHPA, reasons.AutoscalerOwned,
			edits(func(h *autoscalingv2.HorizontalPodAutoscaler) { h.OwnerReferences = nil }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.setUp(w)
			server := newServer()
			players := countPlayers(t, server)
			players.is(0)
			w.deployment("lobby", 1)
			w.service("lobby")
			since := w.latest()
			w.elastic("lobby", c.by, sleepAfter(time.Second), byPlayers(1))
			w.servers("lobby", server)
			w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe), autoscalerReady(metav1.ConditionFalse, c.reason),
				hasCondition(conditions.Ready, metav1.ConditionFalse, c.reason))
			w.stays("lobby", 2*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
			if n := w.count(since, toPhase("lobby", v1alpha1.PhaseFallingAsleep)); n > 0 {
				t.Errorf("it fell asleep %d times, want never", n)
			}
			c.mend(w)
			w.want("lobby", promptly, autoscalerReady(metav1.ConditionTrue, reasons.OK))
			w.want("lobby", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
		})
	}
}

// KEDA's own admission webhook, for one, may refuse each change.
func TestAScaledObjectThatCantBePausedKeepsTheServiceAwake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	so := w.scaledObject("lobby", 1)
	w.refuse("keda.sh", "v1alpha1", "scaledobjects", admissionv1.Update, func(ctx context.Context) error {
		return w.c.Patch(ctx, so.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`)), client.DryRunAll)
	})
	since := w.latest()
	b := w.beside("lobby", 1, byKEDA)
	b.players.is(0)
	w.want("lobby", afterSettling, autoscalerReady(metav1.ConditionFalse, reasons.AutoscalerUnpausable),
		hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.AutoscalerUnpausable), inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.stays("lobby", 5*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	if n := w.count(since, writesTo("lobby")); n > 0 {
		t.Errorf("the target was written %d times, want none", n)
	}
	w.wantAnnotations("lobby", nil)
}

// KEDA may come after the ElasticService that names one of its objects. Nothing but the
// operator's watch has begun by then.
func TestAnElasticServiceIsThereBeforeKEDA(t *testing.T) {
	removeKEDA(t)
	w := newWorld(t)
	b := w.beside("lobby", 1, byKEDA)
	w.want("lobby", promptly, autoscalerReady(metav1.ConditionFalse, reasons.AutoscalerNotInstalled))
	installKEDA(t)
	t.Parallel() // it takes a while, and the others want KEDA
	w.create(manifest("lobby", 1))
	w.want("lobby", afterElection, autoscalerReady(metav1.ConditionTrue, reasons.OK))
	es := b.sleep()
	w.wantAnnotations("lobby", pausedFor(es))
}
