package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/valyala/fasthttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/serviceauth"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/raising"
	"dormouse.dev/dormouse/operator/internal/target"
)

// storm is a replica with many services that sleep, and what it does with them.
type storm struct {
	*Waker
	// takes is how long the scaling of a target takes: as long as its time lasts where it is negative.
	// A stamp takes stampTakes.
	takes      func(name string) time.Duration
	stampTakes time.Duration
	// stampFails has stamps fail.
	stampFails atomic.Bool

	mu sync.Mutex
	// raised are the targets that were scaled up, in order, and at is when; stamped is when the wakes were.
	raised  []string
	at      map[string]time.Time
	stamped map[string][]time.Time
	// stamping is how many stamps are under way, and atOnce how many were at most.
	stamping, atOnce int
	// left is how much time each had for that when it began.
	left map[string]time.Duration
}

func (s *storm) RaiseTo(ctx context.Context, ref target.Ref, want target.Replicas) (target.Raised, error) {
	deadline, _ := ctx.Deadline()
	s.mu.Lock()
	s.left[ref.Name] = time.Until(deadline)
	s.mu.Unlock()
	if takes := s.takes(ref.Name); takes < 0 {
		<-ctx.Done()
		return target.Raised{}, ctx.Err()
	} else if takes > 0 {
		<-time.After(takes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raised, s.at[ref.Name] = append(s.raised, ref.Name), time.Now()
	return target.Raised{After: want.FromZero}, nil
}

// scaledAt is when a target was scaled up. Others may be just now.
func (s *storm) scaledAt(name string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[name]
}

// newStorm makes so many services that sleep in each namespace, named namespace-number, with targets of
// the same names.
func newStorm(t *testing.T, of map[string]int, changes ...func(*v1alpha1.ElasticService)) *storm {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "resolver", UID: "pod"}}}
	for namespace, count := range of {
		for i := range count {
			es := &v1alpha1.ElasticService{}
			es.Namespace, es.Name = namespace, serviceName(namespace, i)
			es.UID, es.Spec.Service, es.Spec.ScaleTargetRef.Name = types.UID(es.Name), es.Name, es.Name
			es.Status.Phase = v1alpha1.PhaseAsleep
			for _, change := range changes {
				change(es)
			}
			objects = append(objects, es)
		}
	}
	s := &storm{
		takes: func(string) time.Duration { return 0 },
		at:    map[string]time.Time{}, stamped: map[string][]time.Time{}, left: map[string]time.Duration{},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.ElasticService{}).
		WithIndex(&v1alpha1.ElasticService{}, index.Service, func(o client.Object) []string { return []string{o.(*v1alpha1.ElasticService).Spec.Service} }).
		WithIndex(&v1alpha1.ElasticService{}, index.Target, func(client.Object) []string { return nil }).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			s.mu.Lock()
			s.stamped[o.GetName()] = append(s.stamped[o.GetName()], time.Now())
			s.stamping++
			s.atOnce = max(s.atOnce, s.stamping)
			s.mu.Unlock()
			<-time.After(s.stampTakes)
			s.mu.Lock()
			s.stamping--
			s.mu.Unlock()
			if s.stampFails.Load() {
				return errors.New("the API server is gone")
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}}).Build()
	s.Waker = NewWaker(c, s, events.NewFakeRecorder(10000), nil)
	s.Raises = raising.New()
	return s
}

func serviceName(namespace string, number int) string {
	return fmt.Sprintf("%s-%03d", namespace, number)
}

// once makes a wake call, which waits as long as the endpoint does.
func (s *storm) once(ctx context.Context, namespace string, number int) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err := s.Wake(ctx, informerapi.WakeRequest{Count: 1, Svc: serviceName(namespace, number), Namespace: namespace})
	return err
}

// call makes wake calls as a resolver does, until the service is woken.
func (s *storm) call(t *testing.T, namespace string, number int) {
	for {
		err := s.once(t.Context(), namespace, number)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrAgain) {
			t.Error(err)
			return
		}
		<-time.After(time.Second)
	}
}

// Of a storm each target is scaled once, in the order of the calls of its namespace, before the first
// wake is stamped, however often the callers come again meanwhile. Then the stamps have their turns.
func TestOfAStormAllTargetsAreScaledFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of := map[string]int{}
		for i := range 20 {
			of[fmt.Sprintf("tenant%02d", i)] = 25
		}
		s := newStorm(t, of)
		s.takes = func(string) time.Duration { return 90 * time.Millisecond }
		s.stampTakes = 30 * time.Millisecond
		began := time.Now()
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() { s.call(t, fmt.Sprintf("tenant%02d", i%20), i/20) })
			<-time.After(2 * time.Millisecond)
		}
		all.Wait()
		if len(s.raised) != 500 || len(s.stamped) != 500 {
			t.Fatalf("%d targets are scaled, and %d wakes stamped, want 500", len(s.raised), len(s.stamped))
		}
		last := s.at[s.raised[499]]
		if took := last.Sub(began); took > 2100*time.Millisecond {
			t.Errorf("all are scaled after %s, want 2 s with 24 at once", took)
		}
		if s.atOnce != 24 {
			t.Errorf("%d wakes are stamped at once, want 24", s.atOnce)
		}
		numbers := map[string][]string{}
		for _, name := range s.raised {
			numbers[name[:8]] = append(numbers[name[:8]], name)
			if stamps := s.stamped[name]; len(stamps) != 1 || stamps[0].Before(last) {
				t.Errorf("the wake of %s is stamped %d times, %s before the last target is scaled; want once, after that", name, len(stamps), last.Sub(stamps[0]))
			}
		}
		for namespace, order := range numbers {
			if !slices.IsSorted(order) {
				t.Errorf("in %s targets are scaled in the order %q", namespace, order)
			}
		}
	})
}

// A stamp waits for the raises of others and for its turn, but where a sleep might be stopped by it, or others
// wake by it.
func TestAStampWaitsForTheRaisesOfOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*v1alpha1.ElasticService)
		want   time.Duration
	}{
		"from zero": {func(*v1alpha1.ElasticService) {}, 1200 * time.Millisecond},
		"a wake group": {func(es *v1alpha1.ElasticService) {
			es.Spec.WakeWith = []string{"database"}
		}, 0},
		"awake": {func(es *v1alpha1.ElasticService) { es.Status.Phase = v1alpha1.PhaseAwake }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStorm(t, map[string]int{"games": 1}, c.change)
				var others sync.WaitGroup
				for i := range 6 {
					// Each takes as long as none hangs, and the next begins before it ends.
					others.Go(func() {
						<-time.After(time.Duration(i) * 160 * time.Millisecond)
						end, err := s.Raises.Begin(t.Context(), "others")
						if err != nil {
							t.Error(err)
							return
						}
						<-time.After(400 * time.Millisecond)
						end()
					})
				}
				for range 30 {
					others.Go(func() { _, _ = s.stamps.Begin(t.Context(), "games") })
				}
				synctest.Wait()
				began := time.Now()
				s.call(t, "games", 0)
				others.Wait()
				stamps := s.stamped["games-000"]
				if len(stamps) != 1 || stamps[0].Sub(began) != c.want || s.scaledAt("games-000").Sub(began) != 0 {
					t.Errorf("it is scaled after %s and stamped after %s; want at once, and once after %s", s.scaledAt("games-000").Sub(began), stamps[0].Sub(began), c.want)
				}
			})
		})
	}
}

// A target that was found with replicas may be about to lose them: its stamp waits as all work does.
func TestAStampOfATargetWithReplicasWaitsHalfASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		asleep := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep}
		w := waker(t, asleep, asleep, &scaled{replicas: 2}, &now)
		w.Raises = raising.New()
		var others sync.WaitGroup
		for range 100 {
			others.Go(func() {
				end, err := w.Raises.Begin(t.Context(), "others")
				if err != nil {
					t.Error(err)
					return
				}
				<-time.After(400 * time.Millisecond)
				end()
			})
		}
		synctest.Wait()
		began := time.Now()
		call(t, w)
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it is answered after %s, want 500 ms", took)
		}
		others.Wait()
	})
}

// hang takes up all turns of a namespace with so many raises that never end.
func (s *storm) hang(t *testing.T, all *sync.WaitGroup, namespace string, count int) {
	for range count {
		all.Go(func() { _, _ = s.Raises.Begin(t.Context(), namespace) })
	}
	synctest.Wait()
}

// Targets whose calls hang hold up those of other namespaces not at all, and those of their own for a bound.
func TestATargetThatHangsHoldsUpOthersForABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, map[string]int{"hangs": 100, "games": 2})
		s.takes = func(name string) time.Duration {
			if name < "hangs" || name == serviceName("hangs", 99) {
				return 0
			}
			return -1
		}
		began := time.Now()
		var all sync.WaitGroup
		for i := range 99 {
			all.Go(func() { _ = s.once(t.Context(), "hangs", i) })
		}
		synctest.Wait()
		all.Go(func() { s.call(t, "hangs", 99) })
		all.Go(func() { s.call(t, "games", 0) })
		synctest.Wait()
		if took := s.scaledAt(serviceName("games", 0)).Sub(began); took != 0 {
			t.Errorf("the other namespace's target is scaled after %s, want at once", took)
		}
		all.Wait()
		if took := s.scaledAt(serviceName("hangs", 99)).Sub(began); took > 3*time.Second {
			t.Errorf("the last of a hundred is scaled after %s, want 3 s at most: 18 of its namespace give their turn up each half second", took)
		}
		<-time.After(turnTime + wakeTime)
	})
}

// The time for scaling begins with the turn. Who waits for longer than five seconds queues anew, when its
// callers come again.
func TestAWakesTimeBeginsWithItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, map[string]int{"games": 1})
		var others sync.WaitGroup
		s.hang(t, &others, "games", 150)
		began := time.Now()
		s.call(t, "games", 0)
		if waited := s.scaledAt("games-000").Sub(began); waited < 2*time.Second || s.left["games-000"] != wakeTime {
			t.Errorf("it had %s for its target after %s, want %s after more than 2 s", s.left["games-000"], waited, wakeTime)
		}
		others.Wait()

		s = newStorm(t, map[string]int{"games": 1})
		s.hang(t, &others, "games", 300)
		began = time.Now()
		_, err := s.Wake(t.Context(), informerapi.WakeRequest{Count: 1, Svc: "games-000", Namespace: "games"})
		if took := time.Since(began); !errors.Is(err, ErrAgain) || took != turnTime || len(s.raised) > 0 {
			t.Errorf("it ended after %s with %v, want that it is to come again after %s", took, err, turnTime)
		}
		others.Wait()
	})
}

// verified takes every token for that of the resolver's pod.
type verified struct{}

func (verified) Verify(context.Context, string) (serviceauth.Identity, error) {
	return serviceauth.Identity{Namespace: "system", ServiceAccount: "resolver", PodName: "resolver", PodUID: "pod"}, nil
}

// handler has the storm's wake calls answered.
func (s *storm) handler() *Handler {
	return &Handler{
		Verifier: verified{}, Pods: s.client, Selector: labels.Everything(), Resolver: types.NamespacedName{Namespace: "system", Name: "resolver"},
		Waker: s.Waker,
	}
}

// wakeCall is a resolver's call for the first service of namespace games.
func wakeCall() *fasthttp.RequestCtx {
	rc := &fasthttp.RequestCtx{}
	rc.Request.Header.Set(fasthttp.HeaderAuthorization, "Bearer token")
	rc.Request.SetBodyString(`{"count":1,"svc":"games-000","namespace":"games"}`)
	return rc
}

// Who is told to call again, because there are many wakes, is no error in the log. What fails is.
func TestACallerThatComesAgainIsNotLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes time.Duration
		fails error
		want  int
	}{"it takes long": {2 * time.Second, nil, 0}, "it fails": {0, errors.New("no API server"), 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStorm(t, map[string]int{"games": 1})
				s.takes = func(string) time.Duration { return c.takes }
				if c.fails != nil {
					s.scaler = failing{c.fails}
				}
				var lines []string
				h := s.handler()
				h.Log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
				rc := wakeCall()
				h.serve(rc)
				if code := rc.Response.StatusCode(); code != fasthttp.StatusServiceUnavailable || string(rc.Response.Header.Peek(fasthttp.HeaderRetryAfter)) != "1" || len(lines) != c.want {
					t.Errorf("answered %d %s, with %d lines in the log; want that it comes again, and %d", code, rc.Response.Body(), len(lines), c.want)
				}
				<-time.After(5 * time.Second)
			})
		})
	}
}

type failing struct{ error }

func (f failing) RaiseTo(context.Context, target.Ref, target.Replicas) (target.Raised, error) {
	return target.Raised{}, f.error
}
