package gametype_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

func TestADeletedGameTypeLetsItsPlayersFinishAndLeavesNothing(t *testing.T) {
	w := newWorld(t, true)
	gt := w.create(nil)
	w.plays(2)
	for _, s := range w.servers() {
		if s.Labels[wellknown.GameTypeLabel] != game || s.Spec.Template.Labels[wellknown.GameTypeLabel] != game {
			t.Errorf("%s is labelled %v, and its Pod %v", s.Name, s.Labels, s.Spec.Template.Labels)
		}
	}
	if err := w.Admin.Delete(t.Context(), gt); err != nil {
		t.Fatal(err)
	}
	w.eventually("the Servers are to go", func() error {
		w.guard()
		for _, s := range w.servers() {
			if s.DeletionTimestamp.IsZero() {
				return fmt.Errorf("%s isn't", s.Name)
			}
		}
		return nil
	})
	w.settled()
	if n := len(w.servers()); n != 3 || !w.there(&corev1.Service{}) || !w.there(&v1alpha1.ElasticService{}) {
		t.Fatalf("while they play there are %d Servers, a Service: %t, an ElasticService: %t", n,
			w.there(&corev1.Service{}), w.there(&v1alpha1.ElasticService{}))
	}
	w.wantCondition(conditions.Progressing, metav1.ConditionFalse, reasons.Draining, "wait for their players to leave")
	w.plays(0)
	w.eventually("all goes", func() error {
		w.guard()
		return errors.Join(
			fixture.WantEqual("Servers", len(w.servers()), 0), fixture.WantEqual("Fleets", len(w.all()), 0), fixture.WantEqual("a GameType", w.there(&v1alpha1.GameType{}), false),
			fixture.WantEqual("a Service", w.there(&corev1.Service{}), false), fixture.WantEqual("an ElasticService", w.there(&v1alpha1.ElasticService{}), false))
	})
}

func TestADeletedGameTypeMayLeaveWhatItMade(t *testing.T) {
	w := newWorld(t, true)
	gt := w.create(nil)
	if err := w.Admin.Delete(t.Context(), gt, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	w.eventually("it goes", func() error { return fixture.WantEqual("a GameType", w.there(&v1alpha1.GameType{}), false) })
	f := w.of("game:1")
	if f == nil || !f.DeletionTimestamp.IsZero() || len(f.OwnerReferences) > 0 || !w.there(&corev1.Service{}) || len(w.servers()) != 3 {
		t.Errorf("the Fleet is %+v, of %d Servers", f, len(w.servers()))
	}
}

func TestServersWhoseTimeIsOverAreEndedByForce(t *testing.T) {
	w := newWorld(t, true)
	w.create(func(gt *v1alpha1.GameType) {
		gt.Spec.Replicas = new(int32(1))
		gt.Spec.Update.RetireAfter = &metav1.Duration{Duration: time.Hour}
	})
	w.plays(2)
	old := w.servers()[0].Name
	w.image("game:2")
	w.plays(2)
	s := &v1alpha1.Server{}
	w.get(old, s)
	if !s.Spec.Drain || !s.DeletionTimestamp.IsZero() {
		t.Fatalf("the old one is %+v", s.Spec)
	}
	w.Clock.Pass(59 * time.Minute)
	w.settled()
	w.get(old, s)
	if s.Spec.Deletion.Force || !s.DeletionTimestamp.IsZero() {
		t.Fatal("it is ended before its time")
	}
	w.Clock.Pass(2 * time.Minute)
	w.settled()
	w.get(old, s)
	if !s.Spec.Deletion.Force || s.DeletionTimestamp.IsZero() {
		t.Fatalf("its time is over, and it is %+v", s.Spec.Deletion)
	}
	if n := w.Emitted("Forced"); n != 1 {
		t.Errorf("%d events tell of it, want 1", n)
	}
	w.guard()
	w.settled()
	if servers := w.servers(); len(servers) != 1 || servers[0].Name == old || !servers[0].DeletionTimestamp.IsZero() {
		t.Errorf("in the end there are %d Servers", len(servers))
	}
}
