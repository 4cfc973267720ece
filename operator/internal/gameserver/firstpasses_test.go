package gameserver

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// started is a Reconciler and its controller's queue, which has no workers.
func started(t *testing.T, there ...*v1alpha1.Server) (*Reconciler, queue) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme)
	for _, s := range there {
		c = c.WithObjects(s)
	}
	r := &Reconciler{Client: c.Build()}
	r.Init()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	if err := r.backlog.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return r, q
}

// drain makes all passes of a queue, and returns whose they are.
func drain(r *Reconciler, q queue) (names []string) {
	for q.Len() > 0 {
		request, _ := q.Get()
		names = append(names, request.Name)
		r.backlog.Begin(request)()
		q.Done(request)
	}
	return names
}

// Servers that players are on or wait for, or that are broken, don't wait for ten thousand that are well.
func TestFirstPassesOfServersThatAreWellAreMadeTwoAtATime(t *testing.T) {
	t.Parallel()
	r, q := started(t)
	first := func(name string, state v1alpha1.ServerState, change func(*v1alpha1.Server)) {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}, Status: v1alpha1.ServerStatus{State: state, ObservedGeneration: 2}}
		if change != nil {
			change(s)
		}
		r.creations().Create(t.Context(), event.CreateEvent{Object: s, IsInInitialList: true}, q)
	}
	const all = 10_000
	rest := []v1alpha1.ServerState{v1alpha1.ServerReady, v1alpha1.ServerAllocated, v1alpha1.ServerReserved, v1alpha1.ServerStopped}
	for i := range all {
		first(strconv.Itoa(i), rest[i%len(rest)], nil)
	}
	urgent := []string{"is new", "Pending", "Starting", "Draining", "Unhealthy", "is deleted", "is to drain", "was changed"}
	for _, state := range urgent[1:5] {
		first(state, v1alpha1.ServerState(state), nil)
	}
	first("is new", "", nil)
	first("is deleted", v1alpha1.ServerReady, func(s *v1alpha1.Server) { s.DeletionTimestamp = new(metav1.Now()) })
	first("is to drain", v1alpha1.ServerReady, func(s *v1alpha1.Server) { s.Spec.Drain = true })
	first("was changed", v1alpha1.ServerStopped, func(s *v1alpha1.Server) { s.Generation++ })
	if q.Len() != 2+len(urgent) || r.Backlog() != all {
		t.Errorf("%d wait for a worker, and %d are in the backlog; want 2 and %d, and %d", q.Len(), r.Backlog(), len(urgent), all)
	}
	passes := drain(r, q)
	if len(passes) != all+len(urgent) || r.Backlog() != 0 {
		t.Errorf("%d had a pass, and %d are left; want all of %d", len(passes), r.Backlog(), all+len(urgent))
	}
	for _, name := range urgent {
		if at := slices.Index(passes, name); at < 0 || at >= 2+len(urgent) {
			t.Errorf("the pass of the one that %s is number %d", name, at)
		}
	}
}

// What is made while the controller's handlers are added may be new for the one and there at the start for the
// other, so one alone asks for passes, and for each.
func TestAServerThatIsMadeWhileALeaderBeginsHasItsPassAtOnce(t *testing.T) {
	t.Parallel()
	r, q := started(t)
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Status: v1alpha1.ServerStatus{State: v1alpha1.ServerReady}}
	r.creations().Create(t.Context(), event.CreateEvent{Object: s}, q)
	if q.Len() != 1 || r.Backlog() != 0 {
		t.Errorf("%d wait for a worker, and %d are in the backlog; want 1 and none", q.Len(), r.Backlog())
	}
}

// Of the Pods that a new leader finds only those that are left of a Server have a pass of their own.
func TestAPodHasAFirstPassOnlyWhereItsServerIsGone(t *testing.T) {
	t.Parallel()
	r, q := started(t, &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}})
	pod := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, Labels: labels}}
	}
	of := map[string]string{wellknown.ServerLabel: "any"}
	h := r.podChanges()
	for _, p := range []*corev1.Pod{pod("lobby", of), pod("orphan", of), pod("stranger", nil)} {
		h.Create(t.Context(), event.CreateEvent{Object: p, IsInInitialList: true}, q)
	}
	if got := drain(r, q); !slices.Equal(got, []string{"orphan"}) {
		t.Errorf("at the start those have passes: %q, want the orphan's", got)
	}
	h.Create(t.Context(), event.CreateEvent{Object: pod("lobby", of)}, q)
	if got := drain(r, q); !slices.Equal(got, []string{"lobby"}) {
		t.Errorf("once there is a new one: %q, want its pass", got)
	}
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("lobby", of), ObjectNew: pod("lobby", of)}, q)
	if got := drain(r, q); !slices.Equal(got, []string{"lobby"}) {
		t.Errorf("once it changed: %q, want its pass", got)
	}
	h.Delete(t.Context(), event.DeleteEvent{Object: pod("lobby", of)}, q)
	if got := drain(r, q); !slices.Equal(got, []string{"lobby"}) {
		t.Errorf("once it is gone: %q, want its pass", got)
	}
}

// A hundred nodes would ask for the passes of all Servers on them, which are asked for already.
func TestWhatServersShareAsksForNoFirstPasses(t *testing.T) {
	t.Parallel()
	lets := firstPasses()
	for _, o := range []client.Object{&corev1.Node{}, &corev1.Service{}} {
		if lets.Create(event.CreateEvent{Object: o, IsInInitialList: true}) || !lets.Create(event.CreateEvent{Object: o}) {
			t.Errorf("a %T asks for passes at the start, or doesn't later", o)
		}
		if !lets.Update(event.UpdateEvent{ObjectOld: o, ObjectNew: o}) {
			t.Errorf("a %T that changes asks for no passes", o)
		}
	}
	for _, o := range []client.Object{&v1alpha1.Server{}, &corev1.Pod{}} {
		if !lets.Create(event.CreateEvent{Object: o, IsInInitialList: true}) {
			t.Errorf("a %T has no first pass", o)
		}
	}
}

// What a new leader learns from all Servers and Pods it learns without a copy of each.
func TestAllServersAndPodsAreReadWithoutCopies(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	server := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "lobby"},
		Spec:       v1alpha1.ServerSpec{Ports: []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7777, Protocol: v1alpha1.ServerProtocolUDP, Expose: v1alpha1.ExposeHostPort}}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(server, v1alpha1.GroupVersion.WithKind("Server"))}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{
			Name: "game", Ports: []corev1.ContainerPort{{Name: "game", ContainerPort: 7777, HostPort: 7001, Protocol: corev1.ProtocolUDP}},
		}}},
	}
	reads, copies := 0, 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(server, pod).
		WithIndex(&corev1.Pod{}, indexNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				reads++
				if !ptr.Deref((&client.ListOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy, false) {
					copies++
				}
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads++
				if !ptr.Deref((&client.GetOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy, false) {
					copies++
				}
				return c.Get(ctx, key, o, opts...)
			},
		}).Build()
	r := &Reconciler{Client: c, LowPort: 7000, HighPort: 7009}
	r.Init()
	r.learnPorts(t.Context())
	if reads != 2 || copies > 0 {
		t.Errorf("host ports are learnt with %d reads, %d of which copy; want 2 and none", reads, copies)
	}
	if requests := r.byNode(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}); len(requests) != 1 || copies > 0 {
		t.Errorf("a node has passes of %v, with %d copies; want its Pod's, and none", requests, copies)
	}
}
