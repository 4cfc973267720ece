package elasticservice

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/raising"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// raisesWorld is a controller whose cache has these ElasticServices.
func raisesWorld(t *testing.T, all ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).WithStatusSubresource(&v1alpha1.ElasticService{}).WithIndex(&v1alpha1.ElasticService{}, index.WakeWith, func(o client.Object) []string {
			return o.(*v1alpha1.ElasticService).Spec.WakeWith
		}).Build(),
		Raises:   raising.New(),
		Triggers: trigger.NewPoller(trigger.Options{}),
	}
	r.Init()
	return r
}

func namedService(name string, change func(*v1alpha1.ElasticService)) *v1alpha1.ElasticService {
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name}}
	change(es)
	return es
}

// Only a service that sleeps or wakes, and for whose pass nobody waits, waits for the end of a storm.
func TestAPassWaitsForTheEndOfAStormWhereNobodyWaitsForIt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	in := func(p v1alpha1.Phase) func(*v1alpha1.ElasticService) {
		return func(es *v1alpha1.ElasticService) { es.Status.Phase = p }
	}
	slept := func(ago time.Duration, pods ...types.UID) func(*v1alpha1.ElasticService) {
		return func(es *v1alpha1.ElasticService) {
			es.Status.Phase, es.Status.PodsBeforeSleep = v1alpha1.PhaseWaking, pods
			es.Status.LastSleepTime = &metav1.MicroTime{Time: now.Add(-ago)}
		}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.ElasticService)
		want   raising.Work
	}{
		"asleep":                     {in(v1alpha1.PhaseAsleep), raising.Patient},
		"waking":                     {in(v1alpha1.PhaseWaking), raising.Patient},
		"awake":                      {in(v1alpha1.PhaseAwake), raising.Prompt},
		"falling asleep":             {in(v1alpha1.PhaseFallingAsleep), raising.Prompt},
		"new":                        {in(""), raising.Prompt},
		"pods of a sleep just begun": {slept(20*time.Second, "pod"), raising.Prompt},
		"pods of an earlier sleep":   {slept(time.Minute, "pod"), raising.Patient},
		"no pods before the sleep":   {slept(20 * time.Second), raising.Patient},
		"it wakes others": {func(es *v1alpha1.ElasticService) {
			es.Status.Phase, es.Spec.WakeWith = v1alpha1.PhaseWaking, []string{"cache"}
		}, raising.Urgent},
		"others wake it": {func(es *v1alpha1.ElasticService) {
			es.Name, es.Status.Phase = "database", v1alpha1.PhaseAsleep
		}, raising.Urgent},
		"it is deleted": {func(es *v1alpha1.ElasticService) {
			es.Status.Phase, es.DeletionTimestamp = v1alpha1.PhaseAsleep, &metav1.Time{Time: now}
		}, raising.Prompt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := raisesWorld(t, namedService("shop", func(es *v1alpha1.ElasticService) { es.Spec.WakeWith = []string{"database"} }))
			r.Now = func() time.Time { return now }
			if got := r.workOf(t.Context(), namedService("lobby", c.change)); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// errGoesOn ends a pass that goes on.
var errGoesOn = errors.New("it goes on")

// noBook has passes end as soon as they go on.
type noBook struct{ Allocations }

func (noBook) WaitSynced(context.Context) error { return errGoesOn }

// A pass that lets raises go first comes again, takes up no worker meanwhile, and keeps its place in the
// backlog, so that thousands in turn don't all come again and again. In turn it waits half a second.
func TestAPassComesAgainWhileTargetsAreScaledUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asleep := func(es *v1alpha1.ElasticService) { es.Status.Phase = v1alpha1.PhaseAsleep }
		r := raisesWorld(t, namedService("lobby", asleep), namedService("arena", asleep))
		r.Allocations = noBook{}
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		if err := r.backlog.Source().Start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			go func() {
				if end, err := r.Raises.Begin(t.Context(), "others"); err == nil {
					time.AfterFunc(400*time.Millisecond, end)
				}
			}()
		}
		synctest.Wait()
		first := func(name string) (took time.Duration) {
			began := time.Now()
			req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "games", Name: name}}
			for {
				asked := time.Now()
				result, err := r.Reconcile(t.Context(), req)
				goesOn := errors.Is(err, errGoesOn)
				if err != nil && !goesOn || !time.Now().Equal(asked) {
					t.Fatalf("it blocked for %s, %v", time.Since(asked), err)
				}
				if took := time.Since(began); goesOn {
					if r.backlog.Took(req) {
						t.Error("it keeps its place in the backlog")
					}
					return took
				}
				<-time.After(result.RequeueAfter)
			}
		}
		inTurn := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "games", Name: "arena"}}
		r.backlog.Add(inTurn)
		if result, err := r.Reconcile(t.Context(), inTurn); err != nil || result.RequeueAfter == 0 || !r.backlog.Took(inTurn) {
			t.Errorf("got %+v, %v, and that it is in the backlog is %v; want that it comes again, and still is", result, err, r.backlog.Took(inTurn))
		}
		if took := first("arena"); took != 500*time.Millisecond {
			t.Errorf("one in turn went on after %s, want half a second", took)
		}
		// The raises are over 2.4 seconds after they began.
		if took := first("lobby"); took < 1800*time.Millisecond || took > 2500*time.Millisecond {
			t.Errorf("one of a service that sleeps went on after %s, want about when the raises were over", took)
		}
		<-time.After(time.Minute)
	})
}

// A pass whose cache lags doesn't repeat what the one before wrote, and the first one goes on after the
// finalizer's write.
func TestAPassDoesntRepeatTheWriteThatTheCacheDoesntShow(t *testing.T) {
	t.Parallel()
	r := raisesWorld(t, namedService("lobby", func(es *v1alpha1.ElasticService) { es.UID = "uid" }))
	r.Ports.LearnOnce(t.Context())
	api, ok := r.Client.(client.WithWatch)
	if !ok {
		t.Fatal("the fake API server watches nothing")
	}
	lagging := &v1alpha1.ElasticService{}
	key := types.NamespacedName{Namespace: "games", Name: "lobby"}
	if err := api.Get(t.Context(), key, lagging); err != nil {
		t.Fatal(err)
	}
	writes := 0
	r.Client = interceptor.NewClient(api, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			if es, ok := o.(*v1alpha1.ElasticService); ok {
				lagging.DeepCopyInto(es)
				return nil
			}
			return errGoesOn
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, opts...)
		},
	})
	for range 3 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); !errors.Is(err, errGoesOn) {
			t.Fatalf("got %v, want that it reads the Service", err)
		}
	}
	if writes != 1 {
		t.Errorf("the finalizer was added %d times, want once", writes)
	}

	// The status goes the same way.
	m := r.states.Of(key, "uid")
	original := m.newest(r.Now(), lagging)
	changed := original.DeepCopy()
	changed.Status.Phase = v1alpha1.PhaseAsleep
	if err := r.patchStatus(t.Context(), m, original, changed); err != nil {
		t.Fatal(err)
	}
	if is := m.newest(r.Now(), lagging); is.Status.Phase != v1alpha1.PhaseAsleep || len(is.Finalizers) != 1 {
		t.Errorf("the next pass goes by phase %q and the finalizers %v, want what was written", is.Status.Phase, is.Finalizers)
	}
	written := m.written
	if err := r.patchStatus(t.Context(), m, changed, changed.DeepCopy()); err != nil || m.written != written {
		t.Errorf("what changes nothing is remembered, or fails: %v", err)
	}
}
