package fleet_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// byItself gives a world whose controller runs by itself.
func byItself(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.reconciler.Now = time.Now
	if err := w.reconciler.Setup(w.Manager); err != nil {
		t.Fatal(err)
	}
	w.Start()
	return w
}

func TestTheControllerFollowsItsServers(t *testing.T) {
	w := byItself(t)
	w.create(2)
	w.wait("the Servers come", func() error { return fixture.WantEqual("Servers", len(w.servers()), 2) })
	names := []string{w.servers()[0].Name, w.servers()[1].Name}
	for _, name := range names {
		w.is(name, v1alpha1.ServerReady, 1)
	}
	w.wait("the Fleet tells of them", func() error {
		f := w.fleet().Status
		return errors.Join(fixture.WantEqual("ready", f.ReadyReplicas, 2), fixture.WantEqual("players", f.Players, 2))
	})
	w.scale(1)
	var drained string
	w.wait("one is drained", func() error {
		for _, s := range w.servers() {
			if s.Spec.Drain {
				drained = s.Name
			}
		}
		return fixture.WantEqual("found", drained != "", true)
	})
	w.is(drained, v1alpha1.ServerDraining, 0)
	w.wait("it goes", func() error {
		w.guard()
		return fixture.WantEqual("Servers", len(w.servers()), 1)
	})
	w.is(w.servers()[0].Name, v1alpha1.ServerUnhealthy, 0)
	w.wait("the broken one is replaced", func() error {
		w.guard()
		all := w.servers()
		if len(all) != 1 || all[0].Name == names[0] || all[0].Name == names[1] {
			return errors.New("it isn't")
		}
		return nil
	})
}

func TestALargeFleetIsMadeOnce(t *testing.T) {
	w := byItself(t)
	w.create(250)
	w.wait("all are there", func() error { return fixture.WantEqual("Servers", len(w.servers()), 250) })
	w.wait("the Fleet tells of them", func() error { return fixture.WantEqual("replicas", w.fleet().Status.Replicas, 250) })
	w.scale(0)
	w.wait("all go", func() error {
		w.guard()
		return fixture.WantEqual("Servers", len(w.servers()), 0)
	})
	made := w.Writes.Take()
	if made[http.MethodPost+" servers"] != 250 || made[http.MethodDelete+" servers"] > 400 {
		t.Errorf("for 250 Servers the controller writes %v", made)
	}
}
