package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/test/api/fixture"
)

const (
	// promptly is for what happens at once. It is long because machines that build
	// are slow.
	promptly = 30 * time.Second
	// fleetName is the Fleet of each test.
	fleetName = "lobbies"
)

// world is a namespace with one Fleet, and a controller of Fleets whose clock and
// passes are the test's.
type world struct {
	*fixture.Controlled
	t          *testing.T
	reconciler *fleet.Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, Controlled: fixture.NewControlled(t, "fleet", func(r *http.Request) string {
		path := strings.Split(r.URL.Path, "/") // /apis/dormouse.dev/v1alpha1/namespaces/NS/servers/...
		return r.Method + " " + path[min(6, len(path)-1)]
	})}
	if err := fleet.SetupIndexes(t.Context(), index.Small{Cache: w.Manager.GetCache()}); err != nil {
		t.Fatal(err)
	}
	w.reconciler = &fleet.Reconciler{Client: w.Manager.GetClient(), Servers: w.Servers, Events: w.Recorder, Now: w.Clock.Now}
	return w
}

// byHand gives a world whose passes are the test's.
func byHand(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.reconciler.Init()
	for _, o := range []client.Object{&v1alpha1.Fleet{}, &v1alpha1.Server{}} {
		if _, err := w.Manager.GetCache().GetInformer(t.Context(), o, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	w.Start()
	return w
}

// reconcile makes one pass.
func (w *world) reconcile() reconcile.Result {
	w.t.Helper()
	result, err := w.reconciler.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.Namespace, Name: fleetName}})
	if err != nil {
		w.t.Fatalf("reconcile: %v", err)
	}
	return result
}

// eventually makes passes until check returns nil.
func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	w.wait(what, func() error {
		w.reconcile()
		return check()
	})
}

// wait waits until check returns nil.
func (w *world) wait(what string, check func() error) {
	w.t.Helper()
	fixture.Eventually(w.t, promptly, what, func(context.Context) error { return check() })
}

// settled makes passes until the cache shows what the API server has and nothing
// more is written.
func (w *world) settled() {
	w.t.Helper()
	unchanged := 0
	w.eventually("the controller comes to rest", func() error {
		if n := len(w.Writes.Take()); n > 0 || !w.CacheIsCurrent(&v1alpha1.ServerList{}, &v1alpha1.FleetList{}) {
			unchanged = 0
			return fmt.Errorf("it made %d kinds of writes", n)
		}
		if unchanged++; unchanged < 3 {
			return errors.New("it may be a chance")
		}
		return nil
	})
}

// create makes the Fleet.
func (w *world) create(replicas int32) *v1alpha1.Fleet {
	w.t.Helper()
	f := &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fleetName},
		Spec: v1alpha1.FleetSpec{
			Replicas: &replicas,
			Template: v1alpha1.ServerTemplate{
				Metadata: v1alpha1.TemplateMetadata{Annotations: map[string]string{"map": "atoll"}},
				Spec: v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}},
				}},
			},
		},
	}
	if err := w.Admin.Create(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
	w.wait("the cache shows the Fleet", func() error {
		return w.Manager.GetClient().Get(w.t.Context(), client.ObjectKeyFromObject(f), &v1alpha1.Fleet{})
	})
	return f
}

// scale changes spec.replicas.
func (w *world) scale(replicas int32) {
	w.t.Helper()
	w.change(func(f *v1alpha1.Fleet) { f.Spec.Replicas = &replicas })
}

func (w *world) change(change func(*v1alpha1.Fleet)) {
	w.t.Helper()
	f := w.fleet()
	before := f.DeepCopy()
	change(f)
	if err := w.Admin.Patch(w.t.Context(), f, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) fleet() *v1alpha1.Fleet {
	w.t.Helper()
	f := &v1alpha1.Fleet{}
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: fleetName}, f); err != nil {
		w.t.Fatal(err)
	}
	return f
}

// servers are those that there are, by name.
func (w *world) servers() []v1alpha1.Server {
	w.t.Helper()
	var list v1alpha1.ServerList
	if err := w.Admin.List(w.t.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// server is one of them; nil when it is gone.
func (w *world) server(name string) *v1alpha1.Server {
	w.t.Helper()
	s := &v1alpha1.Server{}
	err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: name}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// is says how a Server is, as its own controller does.
func (w *world) is(name string, state v1alpha1.ServerState, players int32) {
	w.t.Helper()
	s := w.server(name)
	before := s.DeepCopy()
	s.Status.State = state
	s.Status.Players = &v1alpha1.PlayersStatus{Current: players, Capacity: 10}
	s.Status.DeletionAllowed = players == 0 && state != v1alpha1.ServerAllocated
	s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, Reported: true}
	ready := condition.False(conditions.Ready, string(state), "The game is %s.", state)
	if state == v1alpha1.ServerReady || state == v1alpha1.ServerAllocated {
		ready = condition.True(conditions.Ready, reasons.OK, "The game takes players.")
	}
	condition.SetAll(&s.Status.Conditions, s.Generation, metav1.Time{Time: w.Clock.Now()}, ready)
	if err := w.Admin.Status().Patch(w.t.Context(), s, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// guard takes the guard away from deleted Servers that nobody plays on.
func (w *world) guard() {
	w.t.Helper()
	for _, s := range w.servers() {
		if s.DeletionTimestamp.IsZero() || s.Status.Players != nil && s.Status.Players.Current > 0 {
			continue
		}
		before := s.DeepCopy()
		s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == wellknown.DeletionGuardFinalizer })
		if err := w.Admin.Patch(w.t.Context(), &s, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
	}
}

// ready brings the Fleet to a number of Ready Servers, and gives their names.
func (w *world) ready(replicas int) []string {
	w.t.Helper()
	w.eventually("the Servers are there", func() error { return fixture.WantEqual("Servers", len(w.servers()), replicas) })
	var names []string
	for _, s := range w.servers() {
		w.is(s.Name, v1alpha1.ServerReady, 0)
		names = append(names, s.Name)
	}
	w.eventually("the Fleet is ready", func() error {
		f := w.fleet()
		if !meta.IsStatusConditionTrue(f.Status.Conditions, conditions.Ready) || int(f.Status.ReadyReplicas) != replicas {
			return fmt.Errorf("its status is %+v", f.Status)
		}
		return nil
	})
	w.settled()
	return names
}
