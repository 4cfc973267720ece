package fleet_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

func TestAFleetMakesItsServersAndReplacesOneThatIsKilled(t *testing.T) {
	w := byHand(t)
	f := w.create(3)
	names := w.ready(3)
	want := []metav1.OwnerReference{{
		APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: fleetName, UID: f.UID, Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	for _, s := range w.servers() {
		if diff := cmp.Diff(want, s.OwnerReferences); diff != "" {
			t.Errorf("%s has the owner (-want +got):\n%s", s.Name, diff)
		}
		if !slices.Contains(s.Finalizers, wellknown.DeletionGuardFinalizer) || s.Labels[wellknown.FleetLabel] != fleetName ||
			s.Annotations["map"] != "atoll" {
			t.Errorf("%s is made with %v and %v", s.Name, s.Finalizers, s.Labels)
		}
	}
	status := w.fleet().Status
	if status.Replicas != 3 || status.Capacity != 30 || status.Selector != "dormouse.dev/fleet=lobbies" || status.ObservedGeneration != f.Generation {
		t.Errorf("the status is %+v", status)
	}

	if err := w.Admin.Delete(t.Context(), w.server(names[0])); err != nil {
		t.Fatal(err)
	}
	w.guard()
	w.eventually("the killed one is replaced", func() error {
		if w.server(names[0]) != nil {
			return errors.New("it is still there")
		}
		return fixture.WantEqual("Servers", len(w.servers()), 3)
	})
	w.settled()
	if n := len(w.servers()); n != 3 {
		t.Errorf("in the end there are %d Servers", n)
	}
	if n := w.Emitted("Created"); n != 2 {
		t.Errorf("%d events tell of new Servers, want one for the three and one for the replacement", n)
	}
}

func TestAnOccupiedServerStaysUntilItsPlayersLeave(t *testing.T) {
	w := byHand(t)
	w.create(5)
	names := w.ready(5)
	w.is(names[2], v1alpha1.ServerReady, 4)
	w.settled()
	w.scale(0)
	w.eventually("four go", func() error {
		w.guard()
		return fixture.WantEqual("Servers", len(w.servers()), 1)
	})
	w.settled()
	s := w.server(names[2])
	if s == nil || !s.Spec.Drain || !s.DeletionTimestamp.IsZero() {
		t.Fatalf("the occupied one is %+v", s)
	}
	w.is(names[2], v1alpha1.ServerDraining, 4)
	w.eventually("the status tells", func() error {
		f := w.fleet().Status
		return errors.Join(fixture.WantEqual("replicas", f.Replicas, 0), fixture.WantEqual("draining", f.DrainingReplicas, 1), fixture.WantEqual("players", f.Players, 4))
	})
	w.is(names[2], v1alpha1.ServerDraining, 0)
	w.eventually("the fifth goes", func() error {
		w.guard()
		return fixture.WantEqual("Servers", len(w.servers()), 0)
	})
}

func TestDrainedServersLeaveOneByOne(t *testing.T) {
	w := byHand(t)
	w.create(3)
	names := w.ready(3)
	for _, name := range names {
		w.is(name, v1alpha1.ServerReady, 2)
	}
	w.settled()
	w.scale(0)
	w.eventually("all are drained", func() error {
		for _, s := range w.servers() {
			if !s.Spec.Drain {
				return fmt.Errorf("%s isn't", s.Name)
			}
		}
		return nil
	})
	for i, name := range names {
		w.settled()
		if n := len(w.servers()); n != 3-i {
			t.Fatalf("%d have no players any more and %d Servers are there", i, n)
		}
		w.is(name, v1alpha1.ServerDraining, 0)
		w.eventually("the empty one goes", func() error {
			w.guard()
			return fixture.WantEqual("Servers", len(w.servers()), 2-i)
		})
	}
}

func TestAScaleUpTakesBackWhatTheFleetDrained(t *testing.T) {
	w := byHand(t)
	w.create(4)
	names := w.ready(4)
	for i, name := range names {
		w.is(name, v1alpha1.ServerReady, int32(i+1))
	}
	hand := w.server(names[3])
	before := hand.DeepCopy()
	hand.Spec.Drain = true
	if err := w.Admin.Patch(t.Context(), hand, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.scale(0)
	w.eventually("three are drained beside the one by hand", func() error {
		n := 0
		for _, s := range w.servers() {
			if s.Spec.Drain && s.Annotations[wellknown.DrainedByAnnotation] == wellknown.DrainedByFleet {
				n++
			}
		}
		return fixture.WantEqual("drained by the Fleet", n, 3)
	})
	w.settled()
	w.scale(2)
	w.eventually("two are taken back", func() error {
		w.guard()
		return errors.Join(fixture.WantEqual("the fullest drains", w.server(names[2]).Spec.Drain, false), fixture.WantEqual("the second drains", w.server(names[1]).Spec.Drain, false))
	})
	w.settled()
	for i, want := range []bool{true, false, false, true} {
		s := w.server(names[i])
		marked := s.Annotations[wellknown.DrainedByAnnotation] != ""
		if s.Spec.Drain != want || marked != (i == 0) || s.Annotations["map"] != "atoll" {
			t.Errorf("the Server with %d players drains: %t, with the annotations %v", i+1, s.Spec.Drain, s.Annotations)
		}
	}
	if n := len(w.servers()); n != 4 {
		t.Errorf("there are %d Servers, want the same four", n)
	}
}

func TestAllocatedServersStay(t *testing.T) {
	w := byHand(t)
	w.create(3)
	names := w.ready(3)
	w.is(names[0], v1alpha1.ServerAllocated, 0)
	w.settled()
	w.scale(0)
	w.eventually("two go", func() error {
		w.guard()
		return fixture.WantEqual("Servers", len(w.servers()), 1)
	})
	w.settled()
	s, f := w.server(names[0]), w.fleet()
	if s == nil || s.Spec.Drain || !s.DeletionTimestamp.IsZero() {
		t.Fatalf("the Allocated one is %+v", s)
	}
	if f.Status.AllocatedReplicas != 1 || f.Status.Replicas != 1 {
		t.Errorf("the status is %+v", f.Status)
	}
	w.is(names[0], v1alpha1.ServerReady, 0)
	w.eventually("it goes when its game ends", func() error {
		w.guard()
		return fixture.WantEqual("Servers", len(w.servers()), 0)
	})
}

// The cache shows a Server a moment late: what became of it meanwhile counts.
func TestAServerThatIsAllocatedInThatVeryMomentStays(t *testing.T) {
	for name, players := range map[string]int32{"empty, and to be deleted": 0, "occupied, and to be drained": 1} {
		t.Run(name, func(t *testing.T) {
			w := byHand(t)
			w.create(1)
			names := w.ready(1)
			w.is(names[0], v1alpha1.ServerReady, players)
			w.settled()
			w.scale(0)
			w.wait("the cache shows the scale", func() error {
				if !w.CacheIsCurrent(&v1alpha1.ServerList{}, &v1alpha1.FleetList{}) {
					return errors.New("not yet")
				}
				return nil
			})
			// The write comes after the cache was read and before the Server is written.
			once := func() { w.is(names[0], v1alpha1.ServerAllocated, players) }
			w.reconciler.Client = &late{Client: w.reconciler.Client, before: func() {
				if once != nil {
					once()
					once = nil
				}
			}}
			if result := w.reconcile(); result.RequeueAfter <= 0 {
				t.Error("nobody will look again")
			}
			if once != nil {
				t.Fatal("nothing was written, so nothing is shown")
			}
			w.settled()
			if s := w.server(names[0]); s == nil || s.Spec.Drain || !s.DeletionTimestamp.IsZero() {
				t.Errorf("the Server is %+v", s)
			}
		})
	}
}

func TestKubectlScalesAFleet(t *testing.T) {
	kubectl := os.Getenv("TEST_ASSET_KUBECTL")
	if kubectl == "" {
		t.Fatal(`TEST_ASSET_KUBECTL is not set: run this with "make test-api"`)
	}
	w := byHand(t)
	f := w.create(1)
	w.ready(1)
	command := exec.CommandContext(t.Context(), kubectl, "--kubeconfig="+fixture.Kubeconfig, "--namespace="+w.Namespace, "scale", "fleet/"+fleetName, "--replicas=3")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("kubectl scale: %v\n%s", err, output)
	}
	w.eventually("there are three", func() error { return fixture.WantEqual("Servers", len(w.servers()), 3) })
	w.settled()
	scale := &autoscalingv1.Scale{}
	if err := w.Admin.SubResource("scale").Get(t.Context(), f, scale); err != nil {
		t.Fatal(err)
	}
	if scale.Spec.Replicas != 3 || scale.Status.Replicas != 3 || scale.Status.Selector != "dormouse.dev/fleet=lobbies" {
		t.Errorf("its scale is %+v, %+v", scale.Spec, scale.Status)
	}
}
