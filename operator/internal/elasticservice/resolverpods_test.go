package elasticservice

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/resolvers"
)

// A resolver pod's life costs a round of all services where it changes who gets clients: once
// for a successor and the end of its predecessor, and at once where clients may go to a pod that
// doesn't take them.
func TestChangesOfResolverPodsThatComeTogetherAreOneRound(t *testing.T) {
	t.Parallel()
	condition := func(ready corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	}
	pending := &corev1.Pod{}
	starting := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.244.0.4", Conditions: condition(corev1.ConditionFalse)}}
	ready := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.244.0.4", Conditions: condition(corev1.ConditionTrue)}}
	moved := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.244.0.9", Conditions: condition(corev1.ConditionTrue)}}
	ending := ready.DeepCopy()
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
	drained := ending.DeepCopy()
	drained.Status.Conditions = condition(corev1.ConditionFalse)
	type step struct{ before, after *corev1.Pod }
	for name, c := range map[string]struct {
		onlyOne bool
		steps   []step
		// want is when the rounds are.
		want []time.Duration
	}{
		"a pod that is made and starts":          {steps: []step{{nil, pending}, {pending, starting}}},
		"one more pod":                           {steps: []step{{starting, ready}}, want: []time.Duration{resolversSettle}},
		"the first pod":                          {onlyOne: true, steps: []step{{starting, ready}}, want: []time.Duration{0}},
		"one more pod that was ready when found": {steps: []step{{nil, ready}}, want: []time.Duration{resolversSettle}},
		"a pod and its successor":                {steps: []step{{starting, ready}, {ready, ending}, {ending, drained}}, want: []time.Duration{resolversSettle}},
		"a pod that fails":                       {steps: []step{{ready, starting}}, want: []time.Duration{0}},
		"a pod with another address":             {steps: []step{{ready, moved}}, want: []time.Duration{0}},
		"a pod that is gone":                     {steps: []step{{drained, nil}}, want: []time.Duration{0}},
		"one more pod, and one that is gone":     {steps: []step{{starting, ready}, {drained, nil}}, want: []time.Duration{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var rounds []time.Duration
				began := time.Now()
				changes := &resolverChanges{wait: resolversSettle, all: func(context.Context, queue) { rounds = append(rounds, time.Since(began)) }}
				h := changes.handler(func(context.Context, *corev1.Pod) bool { return c.onlyOne })
				lets := resolvers.Changed()
				for _, s := range c.steps {
					switch {
					case s.before == nil:
						if e := (event.CreateEvent{Object: s.after}); lets.Create(e) {
							h.Create(t.Context(), e, nil)
						}
					case s.after == nil:
						if e := (event.DeleteEvent{Object: s.before}); lets.Delete(e) {
							h.Delete(t.Context(), e, nil)
						}
					default:
						if e := (event.UpdateEvent{ObjectOld: s.before, ObjectNew: s.after}); lets.Update(e) {
							h.Update(t.Context(), e, nil)
						}
					}
				}
				<-time.After(time.Minute)
				synctest.Wait()
				if !slices.Equal(rounds, c.want) {
					t.Errorf("rounds after %v, want %v", rounds, c.want)
				}
			})
		})
	}
}

// Those that somebody may wait for have their passes first, and those whose clients don't go to
// resolvers last.
func TestARoundBeginsWithThoseThatSomebodyWaitsFor(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Name: "a-awake"}, Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe}},
		&v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Name: "b-asleep"}, Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy}},
		&v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Name: "c-in-front"}, Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeProxy}},
		&v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Name: "d-wakes"}, Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy}},
		&v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Name: "e-holds"}, Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Queued: 1}},
	).Build()
	r := &Reconciler{Client: c}
	r.Init()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	r.all(t.Context(), q)
	if err := r.backlog.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	var order []string
	for q.Len() > 0 {
		request, _ := q.Get()
		order = append(order, request.Name)
		r.backlog.Begin(request)()
		q.Done(request)
	}
	if want := []string{"d-wakes", "e-holds", "b-asleep", "c-in-front", "a-awake"}; !slices.Equal(order, want) {
		t.Errorf("the order of passes is %q, want %q", order, want)
	}
}

// A new leader's first passes leave the processors to wakes: two at a time, but those that somebody may
// wait for, which are first. Each service has one.
func TestFirstPassesThatNobodyWaitsForAreMadeTwoAtATime(t *testing.T) {
	t.Parallel()
	r := &Reconciler{}
	r.Init()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := r.firsts.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	const all = 10_000
	slept := metav1.NewMicroTime(time.Unix(1000, 0))
	for i := range all {
		es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}, Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, LastSleepTime: &slept}}
		switch i {
		case all / 2:
			es.Status.Phase = v1alpha1.PhaseWaking
		case all / 3: // it was woken while there was no leader
			es.Status.LastWakeTime = new(metav1.NewMicroTime(slept.Add(time.Second)))
		}
		r.creations().Create(t.Context(), event.CreateEvent{Object: es, IsInInitialList: true}, q)
	}
	if q.Len() != 4 || r.Backlog() != all-2 {
		t.Errorf("%d wait for a worker, and %d are in the backlog; want the two that wake and 2 of %d", q.Len(), r.Backlog(), all-2)
	}
	r.creations().Create(t.Context(), event.CreateEvent{Object: &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Name: "new"}}}, q)
	if q.Len() != 5 {
		t.Errorf("%d wait for a worker, want a new one at once, too", q.Len())
	}
	had := map[string]int{}
	for i := 0; q.Len() > 0; i++ {
		request, _ := q.Get()
		had[request.Name]++
		if request.Name == strconv.Itoa(all/2) && i > 4 {
			t.Errorf("the one that wakes has its pass after %d others", i)
		}
		r.firsts.Begin(request)()
		q.Done(request)
	}
	if len(had) != all+1 || r.Backlog() != 0 {
		t.Errorf("%d of %d had a pass, and %d are left", len(had), all, r.Backlog())
	}
}

// A change of resolver pods is one pass of a service at rest, as long as there is no next step for it.
func TestASliceOfAServiceAtRestIsWrittenWithoutAnotherPass(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).Build()}
	r.Init()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := r.backlog.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	inTurn := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Name: "lobby"}, Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep}}
	r.backlog.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(inTurn)})
	other := inTurn.DeepCopy()
	other.Name = "other"
	two := []endpoints.Resolver{{UID: "a"}, {UID: "b"}}
	for name, c := range map[string]struct {
		es        *v1alpha1.ElasticService
		resolvers []endpoints.Resolver
		roles     map[string]endpoints.Role
		scale     planner.Scale
		silent    bool
	}{
		"all take clients":           {es: inTurn, resolvers: two, roles: map[string]endpoints.Role{"a": endpoints.RoleReady, "b": endpoints.RoleReady}, silent: true},
		"one is about to end":        {es: inTurn, resolvers: two, roles: map[string]endpoints.Role{"a": endpoints.RoleReady, "b": endpoints.RoleTerminating}},
		"one that ends is taken out": {es: inTurn, resolvers: []endpoints.Resolver{{UID: "a"}, {UID: "b", Ends: true}}, roles: map[string]endpoints.Role{"a": endpoints.RoleReady}, silent: true},
		"one doesn't listen yet":     {es: inTurn, resolvers: two, roles: map[string]endpoints.Role{"a": endpoints.RoleReady}},
		"there is no resolver":       {es: inTurn},
		"the target is scaled up":    {es: inTurn, resolvers: two, roles: map[string]endpoints.Role{"a": endpoints.RoleReady, "b": endpoints.RoleReady}, scale: planner.Scale{Replicas: 1}},
		"the pass isn't in turn":     {es: other, resolvers: two, roles: map[string]endpoints.Role{"a": endpoints.RoleReady, "b": endpoints.RoleReady}},
	} {
		p := &pass{es: c.es, observed: planner.Observed{Resolvers: c.resolvers, Scale: c.scale}, plan: planner.Plan{Roles: c.roles}}
		if got := r.echoesOf(p) != nil; got != c.silent {
			t.Errorf("%s: the next pass needs no news: %t, want %t", name, got, c.silent)
		}
	}
}

// A service that sleeps and has its turn shares the question to the resolver pods with those that follow. One that
// somebody may wait for, that is awake or that has a pass for another reason doesn't.
func TestOnlySleepingServicesInTurnAreAskedAboutTogether(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	named := func(name string, s v1alpha1.ElasticServiceStatus) *v1alpha1.ElasticService {
		return &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}, Status: s}
	}
	asleep := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy}
	a, b, other := named("a", asleep), named("b", asleep), named("other", asleep)
	awake := named("awake", v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe})
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(a, b, other, awake).Build()}
	r.Init()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	for _, of := range []*kit.Backlog{r.backlog, r.firsts} {
		if err := of.Source().Start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		for _, es := range []*v1alpha1.ElasticService{a, awake, b} {
			of.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(es)})
		}
		if r.turnsOf(a, &planner.Observed{}) != of {
			t.Error("a sleeping service in turn isn't asked about with the next ones")
		}
		uids := slices.Sorted(slices.Values(r.coming(t.Context(), of)))
		if !slices.Equal(uids, []string{"uid-a", "uid-b"}) {
			t.Errorf("asked about with it are %q, want those that sleep", uids)
		}
		held, ends := a.DeepCopy(), a.DeepCopy()
		held.Status.Queued, ends.DeletionTimestamp = 1, &metav1.Time{Time: time.Unix(1000, 0)}
		for what, es := range map[string]*v1alpha1.ElasticService{
			"one that is awake": awake, "one with a pass for another reason": other, "one that clients wait for": held, "one that is being deleted": ends,
		} {
			if r.turnsOf(es, &planner.Observed{}) != nil {
				t.Errorf("%s is asked about with the next ones", what)
			}
		}
		for what, scale := range map[string]planner.Scale{"one whose target is scaled up": {Replicas: 1}, "one whose target can't be read": {Err: errors.New("refused")}} {
			if r.turnsOf(a, &planner.Observed{Scale: scale}) != nil {
				t.Errorf("%s is asked about with the next ones", what)
			}
		}
		for q.Len() > 0 {
			request, _ := q.Get()
			of.Begin(request)()
			q.Done(request)
		}
	}
}

// The passes of a round share their questions.
func TestARoundOfSleepingServicesAsksFewQuestions(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var questions atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == informerapi.RoutesPath {
			questions.Add(1)
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	address, token := server.Listener.Addr().(*net.TCPAddr), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "resolver"}, Status: corev1.PodStatus{PodIP: address.IP.String(), Phase: corev1.PodRunning},
	})
	var all []*v1alpha1.ElasticService
	for i := range resolvers.MaxAhead {
		all = append(all, &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: strconv.Itoa(i), UID: types.UID(strconv.Itoa(i))}, Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep}})
		c = c.WithObjects(all[i])
	}
	r := &Reconciler{Client: c.Build()}
	r.Resolvers = resolvers.Pods{Client: r.Client, Observer: resolvers.NewObserver(address.Port, tokenfile.New(token)), Namespace: "system", Selector: labels.Everything()}
	r.Init()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := r.backlog.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	for _, es := range all {
		r.backlog.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(es)})
	}
	began := time.Now()
	for q.Len() > 0 {
		request, _ := q.Get()
		end := r.backlog.Begin(request)
		i, _ := strconv.Atoi(request.Name)
		var o planner.Observed
		if err := r.observeResolvers(t.Context(), all[i], &o); err != nil || len(o.Resolvers) != 1 || !o.Resolvers[0].Reachable {
			t.Errorf("service %d: it sees %+v, %v; want the resolver", i, o.Resolvers, err)
		}
		end()
		q.Done(request)
	}
	// One for each 200 ms that it took.
	if most := 1 + int32(time.Since(began)/(200*time.Millisecond)); questions.Load() > most {
		t.Errorf("%d passes asked %d questions, want %d at most", len(all), questions.Load(), most)
	}
}
