package fleet_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// newest is the Server that isn't one of those.
func (w *world) newest(seen map[string]bool) string {
	w.t.Helper()
	for _, s := range w.servers() {
		if !seen[s.Name] {
			return s.Name
		}
	}
	return ""
}

func TestReplacementsOfUnhealthyServersComeLaterAndLater(t *testing.T) {
	w := byHand(t)
	w.create(2)
	names := w.ready(2)
	seen := map[string]bool{names[0]: true, names[1]: true}
	failing := names[0]
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		w.is(failing, v1alpha1.ServerUnhealthy, 0)
		w.eventually("the broken one goes", func() error {
			w.guard()
			return fixture.WantEqual("Servers", len(w.servers()), 1)
		})
		w.settled()
		if fresh := w.newest(seen); fresh != "" {
			t.Fatalf("%s came at once", fresh)
		}
		if c := meta.FindStatusCondition(w.fleet().Status.Conditions, conditions.Ready); c.Status != metav1.ConditionFalse || c.Reason != reasons.Backoff {
			t.Errorf("while a replacement waits, Ready is %s with %s: %s", c.Status, c.Reason, c.Message)
		}
		w.Clock.Pass(wait - time.Second/10)
		if result := w.reconcile(); result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
			t.Errorf("a little before its time the next look comes in %s", result.RequeueAfter)
		}
		w.settled()
		if fresh := w.newest(seen); fresh != "" {
			t.Fatalf("%s came before %s were over", fresh, wait)
		}
		w.Clock.Pass(time.Second / 10)
		w.eventually("it is replaced", func() error {
			if failing = w.newest(seen); failing == "" {
				return errors.New("it isn't")
			}
			return nil
		})
		seen[failing] = true
		w.is(failing, v1alpha1.ServerReady, 0)
		w.settled()
		w.Clock.Pass(30 * time.Second)
	}
	if n := w.Emitted("Unhealthy"); n != 4 {
		t.Errorf("%d events tell of broken Servers, want 4", n)
	}
}

func TestABrokenServerKeepsItsPlayersAndIsReplaced(t *testing.T) {
	w := byHand(t)
	w.create(1)
	names := w.ready(1)
	w.is(names[0], v1alpha1.ServerUnhealthy, 3)
	w.eventually("it drains", func() error { return fixture.WantEqual("spec.drain", w.server(names[0]).Spec.Drain, true) })
	w.Clock.Pass(time.Second)
	w.eventually("it is replaced", func() error { return fixture.WantEqual("Servers", len(w.servers()), 2) })
	w.settled()
	if n := len(w.servers()); n != 2 {
		t.Errorf("there are %d Servers", n)
	}
	w.is(names[0], v1alpha1.ServerDraining, 0)
	w.eventually("it goes with its players", func() error {
		w.guard()
		return fixture.WantEqual("Servers", len(w.servers()), 1)
	})
}

func TestAGameThatEndsIsReplaced(t *testing.T) {
	w := byHand(t)
	w.create(1)
	names := w.ready(1)
	w.is(names[0], v1alpha1.ServerAllocated, 8)
	w.settled()
	s := w.server(names[0])
	before := s.DeepCopy()
	s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameShutdown, Since: &metav1.Time{Time: w.Clock.Now()}, Reported: true}
	s.Status.Players.Current = 0
	if err := w.Admin.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	// It was played, so that the next match begins at once.
	w.eventually("it is replaced without a wait", func() error {
		w.guard()
		return errors.Join(fixture.WantEqual("Servers", len(w.servers()), 1), fixture.WantEqual("the old one is there", w.server(names[0]) != nil, false))
	})
}

func TestRefusedServersAreAskedForLessAndLess(t *testing.T) {
	w := byHand(t)
	const key = corev1.ResourceName("count/servers.dormouse.dev")
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{key: resource.MustParse("2")}},
	}
	if err := w.Admin.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	w.wait("the quota holds", func() error {
		if err := w.Admin.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if _, ok := quota.Status.Used[key]; !ok {
			return errors.New("nothing was counted yet")
		}
		return nil
	})
	w.create(50)
	w.reconcile()
	// One, and two more, of which one is refused.
	if got := w.Writes.Take()[http.MethodPost+" servers"]; got > 3 {
		t.Errorf("the first pass asks for %d Servers, want 3 at most", got)
	}
	tries := 0
	for range 4 {
		w.eventually("the condition tells", func() error {
			c := meta.FindStatusCondition(w.fleet().Status.Conditions, conditions.Ready)
			if c == nil || c.Reason != reasons.ServerRefused || !strings.Contains(c.Message, "exceeded quota") {
				return fmt.Errorf("it is %+v", c)
			}
			return nil
		})
		w.settled()
		result := w.reconcile()
		if result.RequeueAfter <= 0 || result.RequeueAfter > 5*time.Minute {
			t.Errorf("the next try is in %s", result.RequeueAfter)
		}
		w.Writes.Take()
		w.Clock.Pass(result.RequeueAfter)
		w.reconcile()
		tries += w.Writes.Take()[http.MethodPost+" servers"]
	}
	if tries != 4 {
		t.Errorf("in four rounds %d Servers are asked for, want 4", tries)
	}
	if n := w.Emitted(reasons.ServerRefused); n != 1 {
		t.Errorf("%d events tell of the refusal, want 1", n)
	}
	if n := len(w.servers()); n != 2 {
		t.Errorf("there are %d Servers, want the 2 that the quota has room for", n)
	}
	before := quota.DeepCopy()
	quota.Spec.Hard[key] = resource.MustParse("100")
	if err := w.Admin.Patch(t.Context(), quota, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.eventually("with room for them all come", func() error {
		w.Clock.Pass(time.Minute)
		return fixture.WantEqual("Servers", len(w.servers()), 50)
	})
}

func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	w := byHand(t)
	w.create(4)
	names := w.ready(4)
	w.is(names[1], v1alpha1.ServerReady, 3)
	w.settled()
	w.scale(2)
	w.eventually("two go", func() error {
		w.guard()
		return fixture.WantEqual("Servers", len(w.servers()), 2)
	})
	w.settled()
	w.Clock.Pass(time.Minute)
	w.settled()
	for range 50 {
		if result := w.reconcile(); result.RequeueAfter != 0 {
			t.Fatalf("a Fleet at rest is looked at again after %s", result.RequeueAfter)
		}
		w.Clock.Pass(time.Minute)
	}
	if n := w.Writes.Take(); len(n) > 0 {
		t.Errorf("fifty passes over a Fleet at rest write %v", n)
	}
}

func TestPlayersAreToldOncePerSecond(t *testing.T) {
	w := byHand(t)
	w.create(1)
	names := w.ready(1)
	w.Clock.Pass(time.Minute)
	writes := 0
	for players := range int32(10) {
		w.is(names[0], v1alpha1.ServerReady, players+1)
		w.wait("the cache shows them", func() error {
			return fixture.WantEqual("current", w.CacheIsCurrent(&v1alpha1.ServerList{}, &v1alpha1.FleetList{}), true)
		})
		if result := w.reconcile(); players > 0 && (result.RequeueAfter <= 0 || result.RequeueAfter > time.Second) {
			t.Errorf("the players are told after %s", result.RequeueAfter)
		}
		writes += w.Writes.Take()[http.MethodPatch+" fleets"]
	}
	if writes != 1 {
		t.Errorf("the status was written %d times within a second, want once", writes)
	}
	w.Clock.Pass(time.Second)
	w.eventually("the rest is told", func() error { return fixture.WantEqual("players", w.fleet().Status.Players, 10) })
}
