package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/namespaces"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/target"
)

// ErrUnknownService says that no ElasticService has the Service.
var ErrUnknownService = errors.New("unknown service")

// remember is for how long an answer serves the next caller, and so how seldom
// wakes are stamped. No service falls asleep within a second of a stamp.
const remember = time.Second

// commitTime is for how long after a sleep is met its target may still be on its way to
// zero. One that is not at zero later than that isn't going there.
const commitTime = 2 * time.Second

// wakeTime bounds the work of one wake, which goes on after its callers were told
// to call again: with an API server that takes a second for each write, one of
// their later calls finds it done.
const wakeTime = 3 * time.Second

// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices/status,verbs=patch

// Raiser scales a target up to what is wanted, never down. Its errors are package
// target's.
type Raiser interface {
	RaiseTo(ctx context.Context, ref target.Ref, want target.Replicas) (target.Raised, error)
}

// Waker scales the target of a service up and stamps the wake, which stops a
// sleep that is under way. Callers that come together share one wake.
type Waker struct {
	// Namespaces are those whose services can be woken; empty: all.
	Namespaces namespaces.List

	client  client.Client
	raiser  Raiser
	events  events.EventRecorder
	metrics *metrics.Informer
	now     func() time.Time

	flight singleflight.Group
	mu     sync.Mutex
	recent map[types.UID]recentWake
	// met are the sleeps whose targets looked as if they were on their way to zero.
	met map[types.UID]metSleep
}

// metSleep is a sleep, and when it was met first.
type metSleep struct {
	version string
	at      time.Time
}

// maxKnown is how many services' wakes, and sleeps, are remembered before those that are
// of no use any more are forgotten.
const maxKnown = 1024

type recentWake struct {
	at time.Time
	// phaseSince is when the phase began that the wake found: a newer phase
	// makes it void.
	phaseSince time.Time
	answer     informerapi.WakeResponse
}

// NewWaker makes a Waker. m may be nil.
func NewWaker(c client.Client, r Raiser, e events.EventRecorder, m *metrics.Informer) *Waker {
	return &Waker{client: c, raiser: r, events: e, metrics: m, now: time.Now, recent: map[types.UID]recentWake{}, met: map[types.UID]metSleep{}}
}

// Wake wakes a service. The answer's phase is Asleep only when the service has
// just fallen asleep for good and its target is not at zero yet: the caller
// must hold its clients and call again.
func (w *Waker) Wake(ctx context.Context, r informerapi.WakeRequest) (informerapi.WakeResponse, error) {
	var es *v1alpha1.ElasticService
	if w.Namespaces.Has(r.Namespace) {
		var err error
		if es, err = index.ForService(ctx, w.client, r.Namespace, r.Svc); err != nil {
			return informerapi.WakeResponse{}, err
		}
	}
	if es == nil {
		return informerapi.WakeResponse{}, fmt.Errorf("no ElasticService has Service %s/%s: %w", r.Namespace, r.Svc, ErrUnknownService)
	}
	if answer, ok := w.recall(es); ok {
		return answer, nil
	}
	done := w.flight.DoChan(string(es.UID), func() (any, error) {
		if answer, ok := w.recall(es); ok {
			return answer, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTime)
		defer cancel()
		return w.wake(ctx, es, r.Count)
	})
	select {
	case result := <-done:
		if result.Err != nil {
			return informerapi.WakeResponse{}, result.Err
		}
		return result.Val.(informerapi.WakeResponse), nil
	case <-ctx.Done():
		return informerapi.WakeResponse{}, fmt.Errorf("wake ElasticService %s: %w", client.ObjectKeyFromObject(es), ctx.Err())
	}
}

func (w *Waker) recall(es *v1alpha1.ElasticService) (informerapi.WakeResponse, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.recent[es.UID]
	if !ok || w.now().Sub(known.at) > remember || sinceOf(es).After(known.phaseSince) {
		return informerapi.WakeResponse{}, false
	}
	return known.answer, true
}

func (w *Waker) wake(ctx context.Context, es *v1alpha1.ElasticService, count int) (informerapi.WakeResponse, error) {
	asked := w.now()
	var raised target.Raised
	ref := target.Ref{ScaleTargetRef: es.Spec.ScaleTargetRef, Namespace: es.Namespace}
	raise := func(es *v1alpha1.ElasticService) (err error) {
		raised, err = w.raiser.RaiseTo(ctx, ref, target.Wanted(es))
		if errors.Is(err, target.ErrForbidden) {
			// Nothing but a wake finds that out: reading a scale may be allowed.
			w.events.Eventf(es, nil, corev1.EventTypeWarning, v1alpha1.ReasonTargetForbidden, "Wake",
				"%s, and the operator %.600s: let it scale %s.", waiting(count), err, ref)
		}
		return err
	}
	// As far as the cache knows, which is enough to scale up first: the player
	// waits for the pod, and the stamp tells afterwards what is so.
	first := es.Status.Phase == v1alpha1.PhaseAsleep || es.Status.Phase == ""
	if first {
		if err := raise(es); err != nil {
			return informerapi.WakeResponse{}, err
		}
	}
	stamped, err := w.stamp(ctx, es, asked)
	if err != nil {
		return informerapi.WakeResponse{}, err
	}
	phase := stamped.Status.Phase
	// FallingAsleep: the stamp has stopped it, and the target keeps its pods.
	if !first && phase != v1alpha1.PhaseFallingAsleep {
		// The cache may not know of the sleep yet, nor of how many replicas it ended.
		if err := raise(stamped); err != nil {
			return informerapi.WakeResponse{}, err
		}
	}
	answer := informerapi.WakeResponse{Phase: string(v1alpha1.PhaseWaking), Replicas: raised.After}
	if slept := stamped.Status.LastSleepTime; slept != nil {
		answer.LastSleepTime = &slept.Time
	}
	switch {
	case phase == v1alpha1.PhaseFallingAsleep, phase == v1alpha1.PhaseAwake:
		answer.Phase, answer.Replicas = string(v1alpha1.PhaseAwake), max(raised.After, es.Status.Replicas)
	case phase == v1alpha1.PhaseAsleep && raised.Before > 0 && w.onItsWay(stamped, raised.Version):
		return informerapi.WakeResponse{Phase: string(v1alpha1.PhaseAsleep), Replicas: raised.After}, nil
	}
	w.keep(es.UID, recentWake{at: w.now(), phaseSince: sinceOf(stamped), answer: answer})
	if raised.After > raised.Before {
		w.metrics.Raised(es.Namespace, es.Spec.Service)
		w.events.Eventf(es, nil, corev1.EventTypeNormal, "Waking", "Wake", "%s: scaled %s %s from %d to %d replicas.",
			waiting(count), ref.Kind, ref.Name, raised.Before, raised.After)
	}
	return answer, nil
}

// onItsWay reports whether a sleep is committed whose target, found with replicas, may still be
// scaled to zero. That write is made to one version of the target: a target of another
// has been at zero and was woken, or isn't going there. Who committed the sleep may be
// gone before the write, which only this replica's own clock tells.
func (w *Waker) onItsWay(es *v1alpha1.ElasticService, version string) bool {
	asleep := es.Status.AsleepTarget
	if asleep == nil || asleep.ResourceVersion != version {
		return false
	}
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	met, ok := w.met[es.UID]
	if !ok || met.version != version {
		if len(w.met) > maxKnown {
			maps.DeleteFunc(w.met, func(_ types.UID, m metSleep) bool { return now.Sub(m.at) >= commitTime })
		}
		met = metSleep{version, now}
		w.met[es.UID] = met
	}
	return now.Sub(met.at) < commitTime
}

// stamp writes lastWakeTime and gives the object as it is after that.
func (w *Waker) stamp(ctx context.Context, es *v1alpha1.ElasticService, asked time.Time) (*v1alpha1.ElasticService, error) {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"lastWakeTime": metav1.NewMicroTime(asked)}})
	if err != nil {
		return nil, fmt.Errorf("encode the wake of ElasticService %s: %w", client.ObjectKeyFromObject(es), err)
	}
	stamped := es.DeepCopy()
	if err := w.client.Status().Patch(ctx, stamped, client.RawPatch(types.MergePatchType, body)); err != nil {
		return nil, fmt.Errorf("stamp the wake of ElasticService %s: %w", client.ObjectKeyFromObject(es), err)
	}
	return stamped, nil
}

// keep remembers an answer, and lets go of those that serve nobody any more.
func (w *Waker) keep(uid types.UID, wake recentWake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.recent) > maxKnown {
		for known, r := range w.recent {
			if wake.at.Sub(r.at) > remember {
				delete(w.recent, known)
			}
		}
	}
	w.recent[uid] = wake
}

// waiting says how many clients wait.
func waiting(count int) string {
	if count == 1 {
		return "1 client waits"
	}
	return fmt.Sprintf("%d clients wait", count)
}

func sinceOf(es *v1alpha1.ElasticService) time.Time {
	if es.Status.PhaseSince == nil {
		return time.Time{}
	}
	return es.Status.PhaseSince.Time
}
