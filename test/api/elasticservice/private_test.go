package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// port is a Service's port, as far as its private Service has it, too.
type port struct {
	Name     string
	Number   int32
	Target   string
	Protocol corev1.Protocol
}

func portsOf(s *corev1.Service) (list []port) {
	for _, p := range s.Spec.Ports {
		list = append(list, port{p.Name, p.Port, p.TargetPort.String(), p.Protocol})
	}
	return list
}

// wantInStep waits until what Dormouse makes for the Service lobby has its ports and this selector. The
// servers are those that Kubernetes finds then.
func (w *world) wantInStep(selector map[string]string, servers ...gameServer) {
	w.t.Helper()
	const service = "lobby"
	public := &corev1.Service{}
	fixture.Eventually(w.t, promptly, "the private Service of "+service+" is in step", func(ctx context.Context) error {
		private := &corev1.Service{}
		if err := errors.Join(w.read(ctx, service, public), w.read(ctx, service+"-dormouse", private)); err != nil {
			return err
		}
		if diff := cmp.Diff(portsOf(public), portsOf(private)); diff != "" {
			return fmt.Errorf("its ports (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(selector, private.Spec.Selector); diff != "" {
			return fmt.Errorf("its selector (-want +got):\n%s", diff)
		}
		return nil
	})
	if len(servers) > 0 {
		w.servers(service, servers...)
	}
	var want []string
	for _, p := range public.Spec.Ports {
		want = append(want, p.Name)
	}
	fixture.Eventually(w.t, promptly, "status and slices of "+service+" are in step", func(ctx context.Context) error {
		es := &v1alpha1.ElasticService{}
		list, err := w.ourSlices(ctx, service)
		if err := errors.Join(err, w.read(ctx, service, es)); err != nil {
			return err
		}
		var listened []string
		for _, p := range es.Status.Ports {
			listened = append(listened, p.Name)
		}
		if diff := cmp.Diff(want, listened); diff != "" {
			return fmt.Errorf("the status's ports (-want +got):\n%s", diff)
		}
		ours := 0
		for _, s := range list {
			var got []string
			for _, p := range s.Ports {
				got = append(got, ptr.Deref(p.Name, ""))
			}
			if diff := cmp.Diff(want, got); len(s.Endpoints) > 0 && diff != "" {
				return fmt.Errorf("the ports of slice %s (-want +got):\n%s", s.Name, diff)
			}
			ours += len(s.Endpoints)
		}
		if es.Status.Mode == v1alpha1.ModeProxy && ours == 0 {
			return errors.New("no resolver takes its clients")
		}
		return ready(es)
	})
}

func TestAllThatBelongsToAServiceFollowsItsChanges(t *testing.T) {
	t.Parallel()
	own := map[string]string{"app": "lobby"}
	for name, phase := range map[string]v1alpha1.Phase{"asleep": v1alpha1.PhaseAsleep, "awake": v1alpha1.PhaseAwake} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			public := w.service("lobby", func(s *corev1.Service) {
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "query", Port: 25566, Protocol: corev1.ProtocolUDP})
			})
			mode, servers := v1alpha1.ModeProxy, []gameServer(nil)
			if phase == v1alpha1.PhaseAwake {
				mode, servers = v1alpha1.ModeServe, []gameServer{newServer()}
			}
			w.deployment("lobby", int32(len(servers)))
			w.elastic("lobby")
			w.wantInStep(own, servers...)
			before := w.want("lobby", promptly, ready, inPhase(phase, mode))

			// Each on top of the one before.
			for _, step := range []struct {
				what     string
				selector map[string]string
				change   func()
			}{
				{"a port is added", own, func() {
					public.Spec.Ports = append(public.Spec.Ports, corev1.ServicePort{Name: "rcon", Port: 25575, TargetPort: intstr.FromInt32(25575)})
				}},
				{"a port is renamed", own, func() { public.Spec.Ports[2].Name = "console" }},
				{"a port gets another number", own, func() { public.Spec.Ports[2].Port = 25576 }},
				{"a port leads to another of the pods'", own, func() { public.Spec.Ports[2].TargetPort = intstr.FromString("console") }},
				{"ports change places", own, func() {
					public.Spec.Ports[1], public.Spec.Ports[2] = public.Spec.Ports[2], public.Spec.Ports[1]
				}},
				{"a port is removed", own, func() { public.Spec.Ports = public.Spec.Ports[:2] }},
				{"the selector changes", map[string]string{"app": "other"}, func() { public.Spec.Selector = map[string]string{"app": "other"} }},
				{"the selector is removed", own, func() { public.Spec.Selector = nil }},
				{"a selector is added", map[string]string{"app": "third"}, func() { public.Spec.Selector = map[string]string{"app": "third"} }},
			} {
				t.Log(step.what)
				if err := w.read(t.Context(), "lobby", public); err != nil {
					t.Fatal(err)
				}
				w.edit(public, step.change)
				w.wantInStep(step.selector, servers...)
				w.want("lobby", promptly, inPhase(phase, mode))
			}

			// A port that goes keeps nothing, and one that stays keeps the resolver's.
			after := w.want("lobby", promptly)
			if before.Status.Ports[0].ResolverPort != after.Status.Ports[0].ResolverPort {
				t.Errorf("resolver port of game went from %d to %d, want the same", before.Status.Ports[0].ResolverPort, after.Status.Ports[0].ResolverPort)
			}
		})
	}
}

func TestAServiceThatIsDeletedAndMadeAgainIsFollowed(t *testing.T) {
	t.Parallel()
	for name, phase := range map[string]v1alpha1.Phase{"asleep": v1alpha1.PhaseAsleep, "awake": v1alpha1.PhaseAwake} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			public := w.service("lobby")
			mode, servers := v1alpha1.ModeProxy, []gameServer(nil)
			if phase == v1alpha1.PhaseAwake {
				mode, servers = v1alpha1.ModeServe, []gameServer{newServer()}
			}
			w.deployment("lobby", int32(len(servers)))
			w.elastic("lobby")
			w.wantInStep(map[string]string{"app": "lobby"}, servers...)
			w.want("lobby", promptly, ready, inPhase(phase, mode))
			if err := w.c.Delete(t.Context(), public); err != nil {
				t.Fatal(err)
			}
			w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.ServiceNotFound), inPhase(phase, mode))
			w.service("lobby", func(s *corev1.Service) {
				s.Spec.Selector = map[string]string{"app": "other"}
				s.Spec.Ports = []corev1.ServicePort{
					{Name: "voice", Port: 9987, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(9987)},
					{Name: "main", Port: 25565, TargetPort: intstr.FromString("game")},
				}
			})
			w.wantInStep(map[string]string{"app": "other"}, servers...)
			w.want("lobby", promptly, inPhase(phase, mode))
			if n := w.replicas("lobby"); int(n) != len(servers) {
				t.Errorf("the target has %d replicas, want %d as before", n, len(servers))
			}
		})
	}
}

// What can't be switched is said though it could be before, and nothing is done to the target.
func TestAServiceThatBecomesUnsupportedIsLeftAloneAndHeals(t *testing.T) {
	t.Parallel()
	headless := func(w *world, public *corev1.Service) { // a Service's address can't be taken away
		if err := w.c.Delete(w.t.Context(), public); err != nil {
			w.t.Fatal(err)
		}
		w.service("lobby", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	}
	for name, c := range map[string]struct{ change, mend func(*world, *corev1.Service) }{
		"it becomes an ExternalName": {
			func(w *world, public *corev1.Service) {
				w.edit(public, func() {
					public.Spec.Type, public.Spec.ExternalName, public.Spec.ClusterIP, public.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "games.example.com", "", nil
				})
			},
			func(w *world, public *corev1.Service) {
				w.edit(public, func() { public.Spec.Type, public.Spec.ExternalName = corev1.ServiceTypeClusterIP, "" })
			},
		},
		"it is made again without an address": {
			headless,
			func(w *world, public *corev1.Service) {
				if err := w.c.Delete(w.t.Context(), public); err != nil {
					w.t.Fatal(err)
				}
				w.service("lobby")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			public := w.service("lobby")
			w.deployment("lobby", 0)
			w.elastic("lobby")
			w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
			since := w.latest()
			c.change(w, public)
			w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.ServiceUnsupported))
			if err := w.read(t.Context(), "lobby", public); err != nil {
				t.Fatal(err)
			}
			c.mend(w, public)
			w.wantInStep(map[string]string{"app": "lobby"})
			w.want("lobby", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
			if n := w.count(since, writesTo("lobby")); n > 0 {
				t.Errorf("the target was written %d times, want none", n)
			}
		})
	}
}
