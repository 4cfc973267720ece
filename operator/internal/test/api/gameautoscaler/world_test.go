package gameautoscaler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/report"
	"dormouse.dev/dormouse/operator/internal/scalewebhook"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/test/api/fixture"
)

const (
	// promptly is for what happens at once. It is long because machines that build are slow.
	promptly = 30 * time.Second
	// game is the GameType of each test, and scaler its GameAutoscaler.
	game, scaler = "duel", "duel"
)

// world is a namespace with a GameType, and a controller of GameAutoscalers whose clock and passes
// are the test's.
type world struct {
	*fixture.Controlled
	t          testing.TB
	reconciler *gameautoscaler.Reconciler
	webhooks   *webhooks
	reports    *reports
	// mu is for the reports.
	mu sync.Mutex
}

// kinds are those whose cache must be current for a test to look at what is done.
var kinds = []client.ObjectList{
	&v1alpha1.GameAutoscalerList{}, &v1alpha1.GameTypeList{}, &v1alpha1.FleetList{}, &v1alpha1.ServerList{}, &autoscalingv2.HorizontalPodAutoscalerList{},
}

// webhooks are the answers that a test gives.
type webhooks struct {
	mu     sync.Mutex
	clock  *fixture.Clock
	answer scalewebhook.Answer
	err    error
	asked  []scalewebhook.Review
	of     []scalewebhook.Endpoint
	// none is set until there is an answer.
	none bool
	// forgotten counts how often the answers were.
	forgotten int
}

func (w *webhooks) Poll(_ scalewebhook.Subject, every time.Duration, e scalewebhook.Endpoint, r scalewebhook.Review) scalewebhook.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.of = append(w.asked, r), append(w.of, e)
	result := scalewebhook.Result{Next: w.clock.Now().Add(every)}
	if !w.none {
		result.Time, result.Answer, result.Err = w.clock.Now(), w.answer, w.err
	}
	return result
}

func (w *webhooks) Forget(string, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgotten++
}

// reports are what the operator's replicas know of the Servers.
type reports struct {
	recent map[string]reportapi.RecentReport
	err    error
	asked  int
}

func (r *reports) Recent(context.Context, string, string) (map[string]reportapi.RecentReport, error) {
	r.asked++
	return r.recent, r.err
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := prepared(t)
	w.Start()
	return w
}

// prepared gives a world whose manager isn't started yet.
func prepared(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, Controlled: fixture.NewControlled(t, "gas", func(r *http.Request) string { return r.Method + " " + r.URL.Path })}
	indexer := index.Small{Cache: w.Manager.GetCache()}
	if err := errors.Join(index.Setup(t.Context(), indexer), report.SetupIndexes(t.Context(), indexer), gameautoscaler.SetupIndexes(t.Context(), indexer)); err != nil {
		t.Fatal(err)
	}
	w.webhooks, w.reports = &webhooks{clock: w.Clock}, &reports{recent: map[string]reportapi.RecentReport{}}
	w.replaceLeader()
	for _, o := range []client.Object{&v1alpha1.GameAutoscaler{}, &v1alpha1.GameType{}, &v1alpha1.Fleet{}, &v1alpha1.Server{}, &autoscalingv2.HorizontalPodAutoscaler{}} {
		if _, err := w.Manager.GetCache().GetInformer(t.Context(), o, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// replaceLeader makes a controller that remembers nothing.
func (w *world) replaceLeader() {
	w.reconciler = &gameautoscaler.Reconciler{
		Client: w.Manager.GetClient(), Scaler: target.NewScaler(w.Manager.GetClient(), w.Manager.GetAPIReader()), Players: w.reports, Webhooks: w.webhooks,
		Events: w.Recorder, Now: w.Clock.Now,
	}
	w.reconciler.Init()
}

// pass makes passes of all GameAutoscalers until they come to rest.
func (w *world) pass() {
	w.t.Helper()
	// What the test has just changed would be taken for what it was.
	fixture.Eventually(w.t, promptly, "the cache has what the test wrote", func(context.Context) error {
		if !w.CacheIsCurrent(kinds...) { //nolint:contextcheck // it has the test's
			return errors.New("it is late")
		}
		return nil
	})
	unchanged := 0
	fixture.Eventually(w.t, promptly, "the controller comes to rest", func(ctx context.Context) error {
		var list v1alpha1.GameAutoscalerList
		if err := w.Admin.List(ctx, &list, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if _, err := w.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}); err != nil {
				return err
			}
		}
		did := w.Writes.Take()
		if current := w.CacheIsCurrent(kinds...); len(did) > 0 || !current { //nolint:contextcheck // it has the test's
			unchanged = 0
			return fmt.Errorf("it made %v", did)
		}
		if unchanged++; unchanged < 3 {
			return errors.New("it may be a chance")
		}
		return nil
	})
}

// after lets time pass, and then makes passes.
func (w *world) after(d time.Duration) {
	w.t.Helper()
	w.Clock.Pass(d)
	w.pass()
}

// gameType makes the GameType with so many replicas.
func (w *world) gameType(replicas int32) {
	w.t.Helper()
	gt := &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game},
		Spec: v1alpha1.GameTypeSpec{
			Replicas: new(max(replicas, 1)), Scale: &v1alpha1.GameTypeScale{Replicas: replicas, Of: new(max(replicas, 1))},
			Template: v1alpha1.ServerTemplate{Spec: serverSpec()},
		},
	}
	if err := w.Admin.Create(w.t.Context(), gt); err != nil {
		w.t.Fatal(err)
	}
}

func serverSpec() v1alpha1.ServerSpec {
	return v1alpha1.ServerSpec{
		Ports:    []v1alpha1.ServerPort{{Name: "game", ContainerPort: 7777}},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}}},
	}
}

// plays are the players on Servers that take 10 each; a negative number is one that starts.
func (w *world) plays(players ...int32) {
	w.t.Helper()
	var have v1alpha1.ServerList
	if err := w.Admin.List(w.t.Context(), &have, client.InNamespace(w.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	for i := len(players); i < len(have.Items); i++ {
		if err := w.Admin.Delete(w.t.Context(), &have.Items[i]); err != nil {
			w.t.Fatal(err)
		}
	}
	clear(w.reports.recent)
	for i, n := range players {
		name := fmt.Sprintf("%s-%02d", game, i)
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: map[string]string{wellknown.GameTypeLabel: game}}, Spec: serverSpec()}
		if i >= len(have.Items) {
			if err := w.Admin.Create(w.t.Context(), s); err != nil {
				w.t.Fatal(err)
			}
		} else {
			s = &have.Items[i]
		}
		before := s.DeepCopy()
		s.Status.State, s.Status.Players = v1alpha1.ServerReady, &v1alpha1.PlayersStatus{Current: max(n, 0), Capacity: 10}
		s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: "pod-" + name}
		if n < 0 {
			s.Status.State = v1alpha1.ServerStarting
		}
		if err := w.Admin.Status().Patch(w.t.Context(), s, client.MergeFrom(before)); err != nil {
			w.t.Fatal(err)
		}
		w.reports.recent[name] = reportapi.RecentReport{Name: name, PodUID: "pod-" + name}
	}
}

// autoscaler makes a GameAutoscaler of the GameType with 1 to 10 Servers that waits for nothing.
func (w *world) autoscaler(name string, policies ...v1alpha1.AutoscalerPolicy) *v1alpha1.GameAutoscaler {
	w.t.Helper()
	none := &metav1.Duration{}
	gas := &v1alpha1.GameAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: v1alpha1.GameAutoscalerSpec{
			TargetRef: v1alpha1.AutoscalerTarget{Name: game}, MaxReplicas: 10, Policies: policies,
			Behavior: v1alpha1.AutoscalerBehavior{ScaleDown: v1alpha1.AutoscalerScaleDown{Cooldown: none, StabilizationWindow: none}},
		},
	}
	if err := w.Admin.Create(w.t.Context(), gas); err != nil {
		w.t.Fatal(err)
	}
	return gas
}

// replicas are the target's.
func (w *world) replicas() int32 {
	w.t.Helper()
	gt := &v1alpha1.GameType{}
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: game}, gt); err != nil {
		w.t.Fatal(err)
	}
	return gt.Spec.Scale.Replicas
}

func (w *world) status(name string) v1alpha1.GameAutoscalerStatus {
	w.t.Helper()
	gas := &v1alpha1.GameAutoscaler{}
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: name}, gas); err != nil {
		w.t.Fatal(err)
	}
	return gas.Status
}

// want checks the target's replicas, and a condition of the GameAutoscaler.
func (w *world) want(replicas int32, name, kind string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	s := w.status(name)
	c := meta.FindStatusCondition(s.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		w.t.Errorf("%s is %+v, want %s %s", kind, c, status, reason)
	}
	if got := w.replicas(); got != replicas {
		w.t.Errorf("%d Servers are asked for, want %d; the status is %+v", got, replicas, s)
	}
}
