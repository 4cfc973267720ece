package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/test/api/apiserver"
)

const (
	// promptly is for what happens at once. It is long because machines that build
	// are slow.
	promptly = 30 * time.Second
	// pollInterval is how often is looked.
	pollInterval = 20 * time.Millisecond
	// fleetName is the Fleet of each test.
	fleetName = "lobbies"
)

// world is a namespace with one Fleet, and a controller of Fleets whose clock and
// passes are the test's.
type world struct {
	t  *testing.T
	ns string
	// admin is the test's own client; it reads from the API server.
	admin      client.Client
	mgr        ctrl.Manager
	reconciler *fleet.Reconciler
	recorder   *events.FakeRecorder
	writes     *writes

	mu  sync.Mutex
	now time.Time
}

// writes counts what the controller writes, by verb and kind.
type writes struct {
	mu     sync.Mutex
	counts map[string]int
}

func (w *writes) wrap(inner http.RoundTripper) http.RoundTripper { return &counter{w, inner} }

type counter struct {
	*writes
	inner http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		path := strings.Split(r.URL.Path, "/") // /apis/dormouse.dev/v1alpha1/namespaces/NS/servers/...
		c.mu.Lock()
		c.counts[r.Method+" "+path[min(6, len(path)-1)]]++
		c.mu.Unlock()
	}
	return c.inner.RoundTrip(r)
}

func (w *writes) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.counts
	w.counts = map[string]int{}
	return taken
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fleet-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, ns: ns.Name, admin: admin, writes: &writes{counts: map[string]int{}},
		recorder: events.NewFakeRecorder(10000), now: time.Now().Truncate(time.Second),
	}
	as := apiserver.Config(t)
	as.QPS = -1
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:dormouse-system:dormouse-operator"}
	as.Wrap(w.writes.wrap)
	w.mgr, err = ctrl.NewManager(as, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.ns: {}}},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.SetupIndexes(t.Context(), w.mgr.GetFieldIndexer()); err != nil {
		t.Fatal(err)
	}
	w.reconciler = &fleet.Reconciler{Client: w.mgr.GetClient(), Events: w.recorder, Now: w.clock}
	return w
}

// byHand gives a world whose passes are the test's.
func byHand(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.reconciler.Init()
	for _, o := range []client.Object{&v1alpha1.Fleet{}, &v1alpha1.Server{}} {
		if _, err := w.mgr.GetCache().GetInformer(t.Context(), o, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	return w
}

// start starts the manager until the test ends.
func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.mgr.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the manager ended with %v", err)
		}
	})
	if !w.mgr.GetCache().WaitForCacheSync(ctx) {
		w.t.Fatal("the caches don't fill")
	}
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// pass lets time pass by.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// reconcile makes one pass.
func (w *world) reconcile() reconcile.Result {
	w.t.Helper()
	result, err := w.reconciler.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.ns, Name: fleetName}})
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
	deadline, ticker := time.After(promptly), time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			w.t.Fatalf("%s: not within %s: %v", what, promptly, err)
		case <-ticker.C:
		}
	}
}

// settled makes passes until the cache shows what the API server has and nothing
// more is written.
func (w *world) settled() {
	w.t.Helper()
	quiet := 0
	w.eventually("the controller comes to rest", func() error {
		if n := len(w.writes.take()); n > 0 || !w.cacheIsCurrent() {
			quiet = 0
			return fmt.Errorf("it made %d kinds of writes", n)
		}
		if quiet++; quiet < 3 {
			return errors.New("it may be a chance")
		}
		return nil
	})
}

// cacheIsCurrent says that the cache has what the API server has.
func (w *world) cacheIsCurrent() bool {
	w.t.Helper()
	versions := func(c client.Reader) string {
		var servers v1alpha1.ServerList
		var fleets v1alpha1.FleetList
		if err := errors.Join(c.List(w.t.Context(), &servers, client.InNamespace(w.ns)), c.List(w.t.Context(), &fleets, client.InNamespace(w.ns))); err != nil {
			w.t.Fatal(err)
		}
		var all []string
		for _, s := range servers.Items {
			all = append(all, s.Name+" "+s.ResourceVersion)
		}
		for _, f := range fleets.Items {
			all = append(all, f.Name+" "+f.ResourceVersion)
		}
		slices.Sort(all)
		return strings.Join(all, ",")
	}
	return versions(w.admin) == versions(w.mgr.GetClient())
}

// create makes the Fleet.
func (w *world) create(replicas int32) *v1alpha1.Fleet {
	w.t.Helper()
	f := &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fleetName},
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
	if err := w.admin.Create(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
	w.wait("the cache shows the Fleet", func() error {
		return w.mgr.GetClient().Get(w.t.Context(), client.ObjectKeyFromObject(f), &v1alpha1.Fleet{})
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
	if err := w.admin.Patch(w.t.Context(), f, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) fleet() *v1alpha1.Fleet {
	w.t.Helper()
	f := &v1alpha1.Fleet{}
	if err := w.admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: fleetName}, f); err != nil {
		w.t.Fatal(err)
	}
	return f
}

// servers are those that there are, by name.
func (w *world) servers() []v1alpha1.Server {
	w.t.Helper()
	var list v1alpha1.ServerList
	if err := w.admin.List(w.t.Context(), &list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// server is one of them; nil when it is gone.
func (w *world) server(name string) *v1alpha1.Server {
	w.t.Helper()
	s := &v1alpha1.Server{}
	err := w.admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, s)
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
	ready := condition.False(v1alpha1.ConditionReady, string(state), "The game is %s.", state)
	if state == v1alpha1.ServerReady || state == v1alpha1.ServerAllocated {
		ready = condition.True(v1alpha1.ConditionReady, v1alpha1.ReasonOK, "The game takes players.")
	}
	condition.SetAll(&s.Status.Conditions, s.Generation, metav1.Time{Time: w.clock()}, ready)
	if err := w.admin.Status().Patch(w.t.Context(), s, client.MergeFrom(before)); err != nil {
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
		s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == v1alpha1.DeletionGuardFinalizer })
		if err := w.admin.Patch(w.t.Context(), &s, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
	}
}

// ready brings the Fleet to a number of Ready Servers, and gives their names.
func (w *world) ready(replicas int) []string {
	w.t.Helper()
	w.eventually("the Servers are there", func() error { return wantEqual("Servers", len(w.servers()), replicas) })
	var names []string
	for _, s := range w.servers() {
		w.is(s.Name, v1alpha1.ServerReady, 0)
		names = append(names, s.Name)
	}
	w.eventually("the Fleet is ready", func() error {
		f := w.fleet()
		if !meta.IsStatusConditionTrue(f.Status.Conditions, v1alpha1.ConditionReady) || int(f.Status.ReadyReplicas) != replicas {
			return fmt.Errorf("its status is %+v", f.Status)
		}
		return nil
	})
	w.settled()
	return names
}

// told are the events so far that name a reason.
func (w *world) told(reason string) int {
	n := 0
	for {
		select {
		case e := <-w.recorder.Events:
			if strings.Contains(e, " "+reason+" ") {
				n++
			}
		default:
			return n
		}
	}
}

func wantEqual[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}
