package fleet_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// gone reports whether the Fleet isn't there any more.
func (w *world) gone() bool {
	w.t.Helper()
	err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: fleetName}, &v1alpha1.Fleet{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err != nil
}

func TestADeletedFleetLetsItsPlayersFinish(t *testing.T) {
	tests := map[string]struct {
		how metav1.DeletionPropagation
		// stays reports whether the Fleet stays as long as its Servers do.
		stays bool
	}{
		"background": {how: metav1.DeletePropagationBackground},
		"foreground": {how: metav1.DeletePropagationForeground, stays: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := byHand(t)
			f := w.create(3)
			names := w.ready(3)
			w.is(names[0], v1alpha1.ServerReady, 2)
			w.settled()
			if err := w.Admin.Delete(t.Context(), f, client.PropagationPolicy(test.how)); err != nil {
				t.Fatal(err)
			}
			w.eventually("the empty ones go", func() error {
				w.guard()
				return fixture.WantEqual("Servers", len(w.servers()), 1)
			})
			w.settled()
			s := w.server(names[0])
			if s == nil || s.DeletionTimestamp.IsZero() || len(w.servers()) != 1 {
				t.Fatalf("the occupied one is %+v, of %d", s, len(w.servers()))
			}
			if gone := w.gone(); gone == test.stays {
				t.Errorf("the Fleet is gone: %t, want %t", gone, !test.stays)
			}
			if test.stays {
				c := meta.FindStatusCondition(w.fleet().Status.Conditions, conditions.Ready)
				if c.Reason != reasons.Draining || c.Message != "The Fleet is being deleted; 1 Server waits for its players to leave." {
					t.Errorf("Ready is False with %s: %s", c.Reason, c.Message)
				}
			}
			w.is(names[0], v1alpha1.ServerDraining, 0)
			w.eventually("all goes", func() error {
				w.guard()
				return errors.Join(fixture.WantEqual("Servers", len(w.servers()), 0), fixture.WantEqual("the Fleet is gone", w.gone(), true))
			})
		})
	}
}

func TestADeletedFleetMayLeaveItsServers(t *testing.T) {
	w := byHand(t)
	f := w.create(2)
	names := w.ready(2)
	if err := w.Admin.Delete(t.Context(), f, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	w.eventually("the Fleet goes", func() error { return fixture.WantEqual("gone", w.gone(), true) })
	w.settled()
	for _, name := range names {
		if s := w.server(name); s == nil || !s.DeletionTimestamp.IsZero() || len(s.OwnerReferences) > 0 {
			t.Errorf("%s is %+v", name, s)
		}
	}
	// One of the same name has nothing to do with them.
	w.create(1)
	w.eventually("the new Fleet makes its own", func() error {
		if n := len(w.servers()); n != 3 {
			return fmt.Errorf("there are %d Servers", n)
		}
		return nil
	})
	w.settled()
	if n := len(w.servers()); n != 3 {
		t.Errorf("in the end there are %d Servers", n)
	}
}
