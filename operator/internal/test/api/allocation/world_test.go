package allocation_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/operator/internal/allocation"
	"dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/gametype"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/informer"
	"dormouse.dev/dormouse/operator/internal/restapi/allocate"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/test/api/fixture"
)

const (
	// promptly is for what happens at once. It is long because machines that build are slow.
	promptly = 60 * time.Second
	// game is the GameType of each test.
	game = "duel"
)

// world is a namespace with the Servers of one GameType.
type world struct {
	*fixture.Controlled
	t     testing.TB
	wakes waker
	// wakesReally has the operator's own waker wake.
	wakesReally bool
	// live is what leaders read the API server by; nil: they believe their caches. Allocator is the last one's.
	live      client.Reader
	allocator *allocation.Allocator
}

// waker counts the wakes of a service, and does nothing else.
type waker struct {
	mu    sync.Mutex
	count int
	first chan struct{}
}

func (w *waker) Wake(context.Context, informerapi.WakeRequest) (informerapi.WakeResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count++; w.count == 1 {
		close(w.first)
	}
	return informerapi.WakeResponse{}, nil
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{t: t, wakes: waker{first: make(chan struct{})}, Controlled: fixture.NewControlled(t, "allocation", func(r *http.Request) string {
		path := strings.Split(r.URL.Path, "/")
		return r.Method + " " + path[min(6, len(path)-1)]
	})}
}

// replica is a replica of the operator.
type replica struct {
	*allocate.Service
	allocator *allocation.Allocator
	// stop ends it as a lost process: nothing is tidied up.
	stop func()
}

// replica starts one. One that doesn't lead serves calls alone.
func (w *world) replica(leads bool) *replica {
	w.t.Helper()
	as := rest.CopyConfig(fixture.Config(w.t))
	as.QPS = -1
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + fixture.SystemNamespace + ":" + fixture.OperatorAccount}
	scheme, err := fixture.Scheme()
	if err != nil {
		w.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(as, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.Namespace: {}}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r := &replica{}
	if leads {
		var wakes allocation.Waker = &w.wakes
		if w.wakesReally {
			wakes = w.realWaker(mgr)
		}
		r.allocator, err = allocation.New(w.t.Context(), allocation.Options{
			Cache: mgr.GetCache(), Client: mgr.GetClient(), Live: w.live, Waker: wakes, Events: w.Recorder, Log: logr.Discard(),
		})
		w.allocator = r.allocator
		if err = errors.Join(err, mgr.Add(r.allocator)); err != nil {
			w.t.Fatal(err)
		}
	}
	// The REST API makes and releases them: the operator may not.
	if r.Service, err = allocate.New(w.t.Context(), mgr.GetCache(), w.Admin, w.Admin); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the replica ended with %v", err)
		}
	})
	w.t.Cleanup(r.stop)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		w.t.Fatal("the caches don't fill")
	}
	if leads {
		if err := r.allocator.WaitSynced(ctx); err != nil {
			w.t.Fatal(err)
		}
	}
	return r
}

// realWaker is the operator's own.
func (w *world) realWaker(mgr ctrl.Manager) allocation.Waker {
	w.t.Helper()
	indexer := index.Small{Cache: mgr.GetCache()}
	if err := errors.Join(index.Setup(w.t.Context(), indexer), fleet.SetupIndexes(w.t.Context(), indexer), gametype.SetupIndexes(w.t.Context(), indexer)); err != nil {
		w.t.Fatal(err)
	}
	scaler := &gametype.Scaler{Client: mgr.GetClient(), Scaler: target.NewScaler(mgr.GetClient(), mgr.GetAPIReader())}
	return informer.NewWaker(mgr.GetClient(), scaler, w.Recorder, nil)
}

// server makes a Ready Server.
func (w *world) server(name string, capacity int32) {
	w.t.Helper()
	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: map[string]string{wellknown.GameTypeLabel: game}},
		Spec: v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}},
		}},
	}
	if err := w.Admin.Create(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	w.change(s, func(st *v1alpha1.ServerStatus) {
		st.State, st.Address, st.NodeName = v1alpha1.ServerReady, "192.0.2.1", "node-1"
		st.Ports = []v1alpha1.ServerPortStatus{{Name: "game", Port: 7777, Protocol: v1alpha1.ServerProtocolUDP}}
		st.Players = &v1alpha1.PlayersStatus{Capacity: capacity}
		st.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: string(s.UID) + "-pod"}
		condition.SetAll(&st.Conditions, s.Generation, metav1.Now(), condition.True(conditions.Ready, reasons.OK, "The game takes players."))
	})
}

// change writes a Server's status.
func (w *world) change(s *v1alpha1.Server, change func(*v1alpha1.ServerStatus)) {
	w.t.Helper()
	before := s.DeepCopy()
	change(&s.Status)
	if err := w.Admin.Status().Patch(w.t.Context(), s, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) serversOf(n int, capacity int32) {
	w.t.Helper()
	for i := range n {
		w.server(fmt.Sprintf("duel-%03d", i), capacity)
	}
}

// seen waits until a replica gives as many Servers as there are.
func (w *world) seen(r *replica, n int) {
	w.t.Helper()
	fixture.Eventually(w.t, promptly, "the book has all Servers", func(context.Context) error {
		return fixture.WantEqual("Servers that could be given", r.allocator.Free(w.Namespace, "GameType", game), n)
	})
}

// phase writes the phase of the GameType's ElasticService, which it makes.
func (w *world) phase(phase v1alpha1.Phase) {
	w.t.Helper()
	es := &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game},
		Spec:       v1alpha1.ElasticServiceSpec{Service: game, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "dormouse.dev/v1alpha1", Kind: "GameType", Name: game}},
	}
	if w.Admin.Get(w.t.Context(), client.ObjectKeyFromObject(es), es) != nil {
		if err := w.Admin.Create(w.t.Context(), es); err != nil {
			w.t.Fatal(err)
		}
	}
	before := es.DeepCopy()
	es.Status.Phase = phase
	if err := w.Admin.Status().Patch(w.t.Context(), es, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// allocations are all that there are.
func (w *world) allocations(ctx context.Context) []v1alpha1.Allocation {
	w.t.Helper()
	var list v1alpha1.AllocationList
	if err := w.Admin.List(ctx, &list, client.InNamespace(w.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// make makes an Allocation as a user of Kubernetes.
func (w *world) make(name string) {
	w.t.Helper()
	a := &v1alpha1.Allocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec:       v1alpha1.AllocationSpec{TargetRef: &v1alpha1.AllocationTarget{Name: game}},
	}
	if err := w.Admin.Create(w.t.Context(), a); err != nil {
		w.t.Fatal(err)
	}
}

// becomes waits until an Allocation has a state and a reason.
func (w *world) becomes(name string, state v1alpha1.AllocationState, reason string) *v1alpha1.Allocation {
	w.t.Helper()
	a := &v1alpha1.Allocation{}
	fixture.Eventually(w.t, promptly, fmt.Sprintf("%s is %s", name, state), func(ctx context.Context) error {
		if err := w.Admin.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, a); err != nil {
			return err
		}
		return errors.Join(
			fixture.WantEqual("state", a.Status.State, state),
			fixture.WantEqual("reason", condition.ReasonOf(a.Status.Conditions, conditions.Allocated), reason),
		)
	})
	return a
}

// outcome is what a call came to.
type outcome struct {
	allocate.Result
	err error
}

// all makes calls at once, and returns what each came to.
func (w *world) all(n int, call func(i int) (allocate.Result, error)) []outcome {
	outcomes := make([]outcome, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { outcomes[i].Result, outcomes[i].err = call(i) })
	}
	group.Wait()
	return outcomes
}

// count counts those that got a Server, the Servers, and those that were refused; it fails for any other
// error.
func (w *world) count(outcomes []outcome) (given int, servers map[string]int, refused int) {
	w.t.Helper()
	servers = map[string]int{}
	for _, o := range outcomes {
		var no *allocate.Refused
		switch {
		case o.err == nil:
			given++
			servers[o.Server]++
		case errors.As(o.err, &no) && no.RetryAfter > 0 && no.Message != "":
			refused++
		case errors.Is(o.err, context.Canceled):
		default:
			w.t.Errorf("a call failed: %v", o.err)
		}
	}
	return given, servers, refused
}
