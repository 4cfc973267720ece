package elasticservice_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// obstacle is something that a user has to mend.
type obstacle struct {
	// setUp makes a Service, a Deployment and an ElasticService "lobby", one of
	// them wrong.
	setUp  func(*world)
	reason string
	// says is in the message: what is wrong, and what to change.
	says []string
	// mend is nil where only replacing the object helps.
	mend func(*world)
}

func TestWhatPointsAtNothingSaysWhatToChangeAndHeals(t *testing.T) {
	t.Parallel()
	for name, o := range obstacles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.asleep("healthy")
			o.setUp(w)
			es := w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, o.reason))
			message := meta.FindStatusCondition(es.Status.Conditions, conditions.Ready).Message
			for _, words := range o.says {
				if !strings.Contains(message, words) {
					t.Errorf("the message is %q, want %q in it", message, words)
				}
			}
			if len(es.Status.Conditions) != 17 {
				t.Errorf("%d conditions, want all 17", len(es.Status.Conditions))
			}
			w.wake(0, resolverToken(t), "healthy")
			w.servers("healthy", newServer())
			w.want("healthy", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
			if o.mend != nil {
				o.mend(w)
				w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
				w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
			}
		})
	}
}

// lobby makes the three objects, each changed.
func lobby(service func(*corev1.Service), elastic func(*v1alpha1.ElasticService)) func(*world) {
	return func(w *world) {
		w.deployment("lobby", 0)
		w.service("lobby", service)
		w.elastic("lobby", elastic)
	}
}

func asIs[T any](T) {}

// edits reads the object "lobby" of a kind and changes it.
func edits[T any, P interface {
	*T
	client.Object
}](change func(P)) func(*world) {
	return func(w *world) {
		w.t.Helper()
		o := P(new(T))
		if err := w.read(w.t.Context(), "lobby", o); err != nil {
			w.t.Fatal(err)
		}
		w.edit(o, func() { change(o) })
	}
}

func obstacles() map[string]obstacle {
	ports := func(specs ...v1alpha1.PortSpec) func(*v1alpha1.ElasticService) {
		return func(es *v1alpha1.ElasticService) { es.Spec.Ports = specs }
	}
	target := func(apiVersion, kind, name string) func(*v1alpha1.ElasticService) {
		return func(es *v1alpha1.ElasticService) {
			es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: apiVersion, Kind: kind, Name: name}
		}
	}
	asItShouldBe := edits(target("apps/v1", "Deployment", "lobby"))
	withoutPorts := edits(ports())
	return map[string]obstacle{
		"no such Service": {
			setUp:  func(w *world) { w.deployment("lobby", 0); w.elastic("lobby") },
			reason: reasons.ServiceNotFound, says: []string{"no Service lobby in namespace", "create it"},
			mend: func(w *world) { w.service("lobby") },
		},
		"a headless Service": {
			setUp:  lobby(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }, asIs),
			reason: reasons.ServiceUnsupported, says: []string{"headless", "use a Service with a cluster IP"},
		},
		"a Service of type ExternalName": {
			setUp: lobby(func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "games.example.com"
			}, asIs),
			reason: reasons.ServiceUnsupported, says: []string{"ExternalName", "ClusterIP, NodePort or LoadBalancer"},
			mend: edits(func(s *corev1.Service) { s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeClusterIP, "" }),
		},
		"an SCTP port": {
			setUp:  lobby(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolSCTP }, asIs),
			reason: reasons.ServiceUnsupported, says: []string{`Port "game"`, "SCTP", "only TCP and UDP"},
			mend: edits(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolTCP }),
		},
		"a port that the Service has not": {
			setUp:  lobby(asIs, ports(v1alpha1.PortSpec{Name: "voice"})),
			reason: reasons.PortUnknown, says: []string{`"voice"`, "correct the name or remove the entry"},
			mend: withoutPorts,
		},
		"a protocol that the Service's port has not": {
			setUp:  lobby(asIs, ports(v1alpha1.PortSpec{Name: "game", Protocol: v1alpha1.ProtocolUDP})),
			reason: reasons.PortUnknown, says: []string{`udp for "game"`, "make them agree"},
			mend: withoutPorts,
		},
		"readiness Connect on a UDP port": {
			setUp: lobby(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP },
				ports(v1alpha1.PortSpec{Name: "game", Readiness: v1alpha1.ReadinessConnect})),
			reason: reasons.PortUnknown, says: []string{"readiness Connect", "remove readiness or set Auto"},
			mend: withoutPorts,
		},
		"no such target": {
			setUp:  func(w *world) { w.service("lobby"); w.elastic("lobby") },
			reason: reasons.TargetNotFound, says: []string{"here is no Deployment", "create it, or correct spec.scaleTargetRef"},
			mend: func(w *world) { w.deployment("lobby", 0) },
		},
		"a kind that nobody knows": {
			setUp:  lobby(asIs, target("apps/v1", "Lobster", "lobby")),
			reason: reasons.TargetNotFound, says: []string{"no kind Lobster in apps/v1", "correct spec.scaleTargetRef"},
			mend: asItShouldBe,
		},
		"a group that nobody knows": {
			setUp:  lobby(asIs, target("lobsters.example.com/v1", "Deployment", "lobby")),
			reason: reasons.TargetNotFound, says: []string{"lobsters.example.com/v1", "correct spec.scaleTargetRef"},
			mend: asItShouldBe,
		},
		"a target without a scale": {
			setUp: func(w *world) {
				w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "lobby"}})
				lobby(asIs, target("v1", "ConfigMap", "lobby"))(w)
			},
			reason: reasons.TargetNotScalable, says: []string{"no scale subresource", "name an object of a kind that has one"},
			mend: asItShouldBe,
		},
		"nothing that finds the pods": {
			setUp: func(w *world) {
				w.deployment("lobby", 0, func(d *appsv1.Deployment) {
					d.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
						{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"lobby", "arena"}},
					}}
				})
				w.service("lobby", selectorless)
				w.elastic("lobby")
			},
			reason: reasons.NoTargetSelector, says: []string{"no selector", "give the Service a selector"},
			mend: edits(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "lobby"} }),
		},
		"a foreign Service with the private name": {
			setUp:  func(w *world) { w.service("lobby-dormouse"); lobby(asIs, asIs)(w) },
			reason: reasons.NameTaken, says: []string{"lobby-dormouse", "delete or rename it"},
			mend: func(w *world) {
				if err := w.c.Delete(w.t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lobby-dormouse"}}); err != nil {
					w.t.Fatal(err)
				}
			},
		},
		"an older ElasticService of the same target": {
			setUp: func(w *world) {
				w.deployment("lobby", 0)
				w.service("other")
				w.service("lobby")
				older := w.elastic("other", func(es *v1alpha1.ElasticService) { es.Spec.ScaleTargetRef.Name = "lobby" })
				w.want("other", promptly, ready)
				w.waitForAnotherSecond(older.CreationTimestamp)
				w.elastic("lobby")
			},
			reason: reasons.TargetTaken, says: []string{"ElasticService other is older", "give one Service all the ports"},
			mend: func(w *world) {
				w.want("other", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
				older := &v1alpha1.ElasticService{}
				if err := w.read(w.t.Context(), "other", older); err != nil {
					w.t.Fatal(err)
				}
				w.edit(older, func() { older.Spec.ScaleTargetRef.Name = "missing" })
			},
		},
		"an older ElasticService of the same Service": {
			setUp: func(w *world) {
				w.deployment("lobby", 0)
				w.service("lobby")
				older := w.elastic("older", func(es *v1alpha1.ElasticService) { es.Spec.Service, es.Spec.ScaleTargetRef.Name = "lobby", "lobby" })
				w.want("older", promptly, ready)
				w.waitForAnotherSecond(older.CreationTimestamp)
				w.elastic("lobby")
			},
			reason: reasons.ServiceTaken, says: []string{"ElasticService older is older", "delete one of the two"},
			mend: func(w *world) {
				w.want("older", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
				w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
				// Without a target its deletion waits for nothing.
				older := &v1alpha1.ElasticService{}
				if err := w.read(w.t.Context(), "older", older); err != nil {
					w.t.Fatal(err)
				}
				w.edit(older, func() { older.Spec.ScaleTargetRef.Name = "missing" })
				if err := w.c.Delete(w.t.Context(), older); err != nil {
					w.t.Fatal(err)
				}
				w.wantGone("older", promptly)
			},
		},
	}
}
