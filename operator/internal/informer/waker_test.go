package informer

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/target"
)

// scaled is a target, and how often it was to be raised.
type scaled struct {
	replicas int32
	raised   int
	version  string
}

func (s *scaled) RaiseTo(_ context.Context, _ target.Ref, want target.Replicas) (target.Raised, error) {
	s.raised++
	before := s.replicas
	if least := want.AtLeast; before == 0 {
		s.replicas = want.FromZero
	} else {
		s.replicas = max(before, least)
	}
	return target.Raised{Before: before, After: s.replicas, Version: s.version}, nil
}

// waker is a replica whose cache shows one ElasticService, while the API server has another
// version of it. Now is its clock.
func waker(t *testing.T, cached, live v1alpha1.ElasticServiceStatus, s *scaled, now *time.Time, changes ...func(*v1alpha1.ElasticService)) *Waker {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "uid"}}
	es.Spec.Service = "lobby"
	for _, change := range changes {
		change(es)
	}
	shown := es.DeepCopy()
	es.Status, shown.Status = live, cached
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(es).WithStatusSubresource(es).
		WithIndex(es, index.Service, func(client.Object) []string { return []string{"lobby"} }).
		WithIndex(es, index.Target, func(client.Object) []string { return nil }).
		WithInterceptorFuncs(interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
			l.(*v1alpha1.ElasticServiceList).Items = []v1alpha1.ElasticService{*shown}
			return nil
		}}).Build()
	w := NewWaker(c, s, events.NewFakeRecorder(100), nil)
	w.now = func() time.Time { return *now }
	return w
}

func call(t *testing.T, w *Waker) informerapi.WakeResponse {
	t.Helper()
	answer, err := w.Wake(t.Context(), informerapi.WakeRequest{Count: 1, Svc: "lobby", Namespace: "games"})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func micro(at time.Time) *metav1.MicroTime { return &metav1.MicroTime{Time: at} }

// A replica that doesn't know of the sleep yet brings back as many as there were before it.
func TestAWakeByAReplicaThatIsBehindBringsAllBack(t *testing.T) {
	now := time.Now()
	cached := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseFallingAsleep, Replicas: 3}
	live := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, ReplicasBeforeSleep: 3, LastSleepTime: micro(now.Add(-3 * time.Second))}
	s := &scaled{}
	if answer := call(t, waker(t, cached, live, s, &now)); answer.Phase != string(v1alpha1.PhaseWaking) || s.replicas != 3 {
		t.Errorf("it is answered %+v, and the target has %d replicas; want 3, as before the sleep", answer, s.replicas)
	}
}

// A sleep that the wake has just stopped keeps its target as it is.
func TestAWakeThatStopsASleepScalesNothing(t *testing.T) {
	now := time.Now()
	for _, cached := range []v1alpha1.Phase{v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAwake} {
		s := &scaled{replicas: 2}
		falling := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseFallingAsleep, Replicas: 2}
		answer := call(t, waker(t, v1alpha1.ElasticServiceStatus{Phase: cached, Replicas: 2}, falling, s, &now))
		if answer.Phase != string(v1alpha1.PhaseAwake) || answer.Replicas != 2 || s.raised != 0 {
			t.Errorf("known as %s: answered %+v, and raised %d times; want that it is awake, and no call", cached, answer, s.raised)
		}
	}
}

// An answer serves callers for a second, and no longer: what it stops may have begun again. A target
// that was scaled up for a sleep isn't looked at again for some seconds.
func TestAnAnswerIsRememberedForASecond(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond) // as the API server has it
	s := &scaled{}
	status := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, LastSleepTime: micro(now.Add(-time.Hour)), PhaseSince: micro(now.Add(-time.Hour))}
	w := waker(t, status, status, s, &now)
	stamp := func() time.Time {
		es := &v1alpha1.ElasticService{}
		if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: "games", Name: "lobby"}, es); err != nil {
			t.Fatal(err)
		}
		return es.Status.LastWakeTime.Time
	}
	call(t, w)
	first := stamp()
	now = now.Add(time.Second)
	if call(t, w); s.raised != 1 || !stamp().Equal(first) {
		t.Errorf("within a second it was raised %d times", s.raised)
	}
	now = now.Add(time.Millisecond)
	if call(t, w); s.raised != 1 || !stamp().After(first) {
		t.Errorf("after a second it was raised %d times, and stamped %s; want another stamp", s.raised, stamp())
	}
	now = now.Add(raisedTime)
	if call(t, w); s.raised != 2 {
		t.Errorf("after some seconds it was raised %d times", s.raised)
	}
}

// What was scaled up may have fallen asleep anew, which the cache doesn't show yet.
func TestATargetThatSleepsAnewIsScaledUpAnew(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond) // as the API server has it
	s := &scaled{}
	status := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, PhaseSince: micro(now.Add(-time.Hour))}
	w := waker(t, status, status, s, &now)
	call(t, w)
	es := &v1alpha1.ElasticService{}
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: "games", Name: "lobby"}, es); err != nil {
		t.Fatal(err)
	}
	s.replicas, es.Status.PhaseSince = 0, micro(now.Add(time.Second))
	if err := w.client.Status().Update(t.Context(), es); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if call(t, w); s.replicas != 1 {
		t.Error("it sleeps on")
	}
}

func TestATargetIsOnItsWayToZeroByItsVersion(t *testing.T) {
	asleep := func(ago time.Duration, now time.Time) v1alpha1.ElasticServiceStatus {
		return v1alpha1.ElasticServiceStatus{
			Phase: v1alpha1.PhaseAsleep, LastSleepTime: micro(now.Add(-ago)), ReplicasBeforeSleep: 2,
			AsleepTarget: &v1alpha1.AsleepTarget{ResourceVersion: "7"},
		}
	}
	for name, c := range map[string]struct {
		version string
		// ago is how long ago the sleep was by this replica's clock.
		ago  time.Duration
		want []v1alpha1.Phase
	}{
		"on its way":                   {"7", 0, []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking}},
		"by a clock that is behind":    {"7", time.Hour, []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking}},
		"by a clock that is ahead":     {"7", -time.Hour, []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking}},
		"woken":                        {"9", 0, []v1alpha1.Phase{v1alpha1.PhaseWaking}},
		"woken, by a clock far behind": {"9", -time.Hour, []v1alpha1.Phase{v1alpha1.PhaseWaking}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			s := &scaled{replicas: 2, version: c.version}
			status := asleep(c.ago, now)
			w := waker(t, status, status, s, &now)
			for i, want := range c.want {
				if answer := call(t, w); answer.Phase != string(want) {
					t.Errorf("call %d is answered %s, want %s", i, answer.Phase, want)
				}
				now = now.Add(time.Second)
			}
		})
	}
}

func TestWaitingClientsAreCountedInWords(t *testing.T) {
	for count, want := range map[int]string{1: "1 client waits", 2: "2 clients wait"} {
		if got := waiting(count); got != want {
			t.Errorf("of %d it is said %q, want %q", count, got, want)
		}
	}
}

// beside is what else sets a target's replicas. It is slow to let go of its pause.
type beside struct {
	released chan types.UID
	slow     chan struct{}
}

func (b *beside) Wanted(context.Context, *v1alpha1.ElasticService) target.Replicas {
	return target.Replicas{AtLeast: 4, FromZero: 4}
}

func (b *beside) Release(_ context.Context, es *v1alpha1.ElasticService) *obstacle.Obstacle {
	<-b.slow
	b.released <- es.UID
	return nil
}

// No client waits for KEDA, and none at all where the service is beside none.
func TestAWakeEndsAPauseAndDoesNotWaitForThat(t *testing.T) {
	now := time.Now()
	asleep := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, LastSleepTime: micro(now.Add(-time.Hour)), PausedScaledObject: "lobby"}
	for name, autoscaler := range map[string]*v1alpha1.Autoscaler{"keda": {Kind: v1alpha1.AutoscalerKEDA, Name: "lobby"}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			s, b := &scaled{}, &beside{released: make(chan types.UID, 1), slow: make(chan struct{})}
			w := waker(t, asleep, asleep, s, &now)
			w.Autoscalers = b
			w.client = named(w.client, autoscaler)
			answer := call(t, w)
			close(b.slow)
			if autoscaler == nil {
				if answer.Replicas != 1 || len(b.released) > 0 {
					t.Errorf("answered %+v, and %d pauses were ended; want 1 replica and none", answer, len(b.released))
				}
				return
			}
			if uid := <-b.released; uid != "uid" || answer.Replicas != 4 {
				t.Errorf("answered %+v, and the pause of %q was ended; want 4 replicas, and that of uid", answer, uid)
			}
		})
	}
}

// named has the client list ElasticServices that name an autoscaler.
func named(c client.Client, autoscaler *v1alpha1.Autoscaler) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, l, opts...)
		for i := range l.(*v1alpha1.ElasticServiceList).Items {
			l.(*v1alpha1.ElasticServiceList).Items[i].Spec.Autoscaler = autoscaler
		}
		return err
	}})
}

// Clients who wait for a service that somebody else woke wait on; else they are told that there is
// nothing to wake. The target is never touched, and nor is the status.
func TestClientsDontWakeAServiceThatTheyMayNot(t *testing.T) {
	now := time.Now()
	for phase, waits := range map[v1alpha1.Phase]bool{
		"": false, v1alpha1.PhaseAsleep: false, v1alpha1.PhaseFallingAsleep: false, v1alpha1.PhaseWaking: true, v1alpha1.PhaseAwake: true,
	} {
		for why, change := range map[error]func(*v1alpha1.ElasticService){
			ErrNeverWakes: func(es *v1alpha1.ElasticService) { es.Spec.Wake = &v1alpha1.Wake{When: v1alpha1.WakeOnNever} },
			ErrKeptAsleep: func(es *v1alpha1.ElasticService) {
				es.Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: now.Add(2 * time.Second).Format(time.RFC3339)}
			},
		} {
			s := &scaled{replicas: 1}
			status := v1alpha1.ElasticServiceStatus{Phase: phase, Replicas: 1, LastSleepTime: micro(now)}
			w := waker(t, status, status, s, &now, func(es *v1alpha1.ElasticService) {
				change(es)
				es.Spec.MinReplicas = new(int32(5))
			})
			answer, err := w.Wake(t.Context(), informerapi.WakeRequest{Count: 1, Svc: "lobby", Namespace: "games"})
			if waits && (err != nil || answer.Phase != string(phase) || answer.LastSleepTime == nil) || !waits && !errors.Is(err, why) {
				t.Errorf("%q: it is answered %+v, %v", phase, answer, err)
			}
			live := &v1alpha1.ElasticService{}
			if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "games", Name: "lobby"}, live); err != nil || live.Status.LastWakeTime != nil || s.raised > 0 {
				t.Errorf("%q: the target was to be raised %d times, and the wake is stamped %v, %v", phase, s.raised, live.Status.LastWakeTime, err)
			}
		}
	}
}

func TestAServiceIsWokenOnceItIsntKeptAsleepAnyMore(t *testing.T) {
	now := time.Now()
	for value, woken := range map[string]bool{now.Format(time.RFC3339): true, "tomorrow": true, now.Add(time.Minute).Format(time.RFC3339): false} {
		s := &scaled{}
		status := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep}
		w := waker(t, status, status, s, &now, func(es *v1alpha1.ElasticService) {
			es.Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: value}
		})
		_, err := w.Wake(t.Context(), informerapi.WakeRequest{Count: 1, Svc: "lobby", Namespace: "games"})
		if (err == nil) != woken || s.raised > 0 != woken {
			t.Errorf("kept asleep until %q, its target is raised %d times, %v", value, s.raised, err)
		}
	}
}

// The target is that one's whose clients wake it, and no other's clients do, whatever the status says.
func TestClientsDontWakeTheTargetThatAnOlderOneHas(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		age        time.Duration
		apiVersion string
		taken      bool
	}{
		"an older one has it":              {time.Hour, "apps/v1", true},
		"by another version":               {time.Hour, "apps/v1beta1", true},
		"a younger one has it":             {-time.Hour, "apps/v1", false},
		"an older one has one of its name": {time.Hour, "example.org/v1", false},
	} {
		s := &scaled{}
		status := v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep}
		w := waker(t, status, status, s, &now, func(es *v1alpha1.ElasticService) {
			es.CreationTimestamp = metav1.NewTime(now)
			es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"}
		})
		w.client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c2 client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			list, options := l.(*v1alpha1.ElasticServiceList), client.ListOptions{}
			err := c2.List(ctx, l, opts...)
			if options.ApplyOptions(opts); err == nil && options.FieldSelector.String() == index.Target+"=Deployment/lobby" {
				other := list.Items[0].DeepCopy()
				other.Name, other.UID, other.CreationTimestamp = "other", "other", metav1.NewTime(now.Add(-c.age))
				other.Spec.ScaleTargetRef.APIVersion = c.apiVersion
				list.Items = append(list.Items, *other)
			}
			return err
		}})
		_, err := w.Wake(t.Context(), informerapi.WakeRequest{Count: 1, Svc: "lobby", Namespace: "games"})
		if errors.Is(err, ErrTargetTaken) != c.taken || !c.taken && err != nil || s.raised > 0 == c.taken {
			t.Errorf("%s: the target is raised %d times, %v", name, s.raised, err)
		}
	}
}
