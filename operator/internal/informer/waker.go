package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/maintenance"
	"dormouse.dev/dormouse/internal/namespaces"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/raising"
	"dormouse.dev/dormouse/operator/internal/target"
)

// ErrUnknownService means that no ElasticService has the Service.
var ErrUnknownService = errors.New("unknown service")

// ErrNeverWakes means that clients may not wake the service, and ErrKeptAsleep that they may not now.
var (
	ErrNeverWakes = errors.New("clients never wake the service")
	ErrKeptAsleep = errors.New("the service is kept asleep")
)

// remember is how long an answer serves further callers, and so how seldom wakes are stamped.
// No service falls asleep within a second of a stamp.
const remember = time.Second

// commitTime is how long after a sleep was first seen its target may still be about to go to
// zero. A target that is not at zero after that isn't going there.
const commitTime = 2 * time.Second

// metTime is how long such a sleep is remembered after the last wake call. While clients wait,
// there is one each second.
const metTime = time.Minute

// raisedTime is for how long a target that was scaled up here isn't looked at again where the cache still
// shows the sleep: while the API server is busy, callers come again before all is written.
const raisedTime = 5 * time.Second

// wakeTime bounds the work of one wake, which goes on after its callers were told to call
// again: with an API server that takes a second for each write, one of their later calls finds
// it done.
const wakeTime = 3 * time.Second

// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices/status,verbs=patch

// Scaler scales a target up to the wanted replicas, never down. Its errors are those of package
// target.
type Scaler interface {
	RaiseTo(ctx context.Context, ref target.Ref, want target.Replicas) (target.Raised, error)
}

// Autoscalers knows what else sets a target's replicas.
type Autoscalers interface {
	// Wanted is how many replicas a wake asks for.
	Wanted(ctx context.Context, es *v1alpha1.ElasticService) target.Replicas
	// Release ends the pause that was made for an ElasticService's sleep; nil: there is none.
	Release(ctx context.Context, es *v1alpha1.ElasticService) *obstacle.Obstacle
}

// Waker scales the target of a service up and stamps the wake, which stops a sleep that is
// under way. Concurrent callers share one wake.
type Waker struct {
	// Namespaces are those whose services can be woken; empty: all.
	Namespaces namespaces.List
	// Autoscalers knows what else sets a target's replicas.
	Autoscalers Autoscalers
	// Raises are told of each target that is scaled up.
	Raises *raising.Raises

	client  client.Client
	scaler  Scaler
	events  events.EventRecorder
	metrics *metrics.Informer
	now     func() time.Time

	flight singleflight.Group
	mu     sync.Mutex
	recent lately[recentWake]
	// met are the sleeps whose targets seemed to be about to go to zero.
	met lately[metSleep]
	// raised are the targets that were scaled up.
	raised lately[raisedTarget]
}

// raisedTarget is how a target was scaled up, and when the phase began that the wake found.
type raisedTarget struct {
	at, phaseSince time.Time
	raised         target.Raised
}

// metSleep is a sleep, and when it was first seen.
type metSleep struct {
	version string
	at      time.Time
}

type recentWake struct {
	at time.Time
	// phaseSince is when the phase began that the wake found: a newer phase invalidates it.
	phaseSince time.Time
	answer     informerapi.WakeResponse
}

// NewWaker makes a Waker. m may be nil.
func NewWaker(c client.Client, r Scaler, e events.EventRecorder, m *metrics.Informer) *Waker {
	return &Waker{
		client: c, scaler: r, events: e, metrics: m, now: time.Now,
		recent: lately[recentWake]{keep: remember}, met: lately[metSleep]{keep: metTime},
		raised: lately[raisedTarget]{keep: raisedTime},
	}
}

// Wake wakes a service. The answer's phase is Asleep only when the sleep has just been
// committed and the target is not at zero yet: the caller must hold its clients and call again.
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
	if wake := es.Spec.Wake; wake != nil && wake.When == v1alpha1.WakeOnNever {
		return unwoken(es, ErrNeverWakes)
	}
	if until, err := maintenance.Until(es.Annotations); err == nil && w.now().Before(until) {
		return unwoken(es, ErrKeptAsleep)
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

// unwoken is the answer about a service that clients don't wake. Those who wait for one that
// wakes, or is awake, wait on: somebody else woke it.
func unwoken(es *v1alpha1.ElasticService, why error) (informerapi.WakeResponse, error) {
	phase := es.Status.Phase
	if phase != v1alpha1.PhaseWaking && phase != v1alpha1.PhaseAwake {
		return informerapi.WakeResponse{}, fmt.Errorf("wake ElasticService %s: %w", client.ObjectKeyFromObject(es), why)
	}
	answer := informerapi.WakeResponse{Phase: string(phase), Replicas: es.Status.Replicas}
	if slept := es.Status.LastSleepTime; slept != nil {
		answer.LastSleepTime = &slept.Time
	}
	return answer, nil
}

func (w *Waker) recall(es *v1alpha1.ElasticService) (informerapi.WakeResponse, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.recent.get(es.UID)
	if !ok || w.now().Sub(last.at) > remember || sinceOf(es).After(last.phaseSince) {
		return informerapi.WakeResponse{}, false
	}
	return last.answer, true
}

// wake raises the target, and stamps the wake: it writes lastWakeTime.
func (w *Waker) wake(ctx context.Context, es *v1alpha1.ElasticService, count int) (informerapi.WakeResponse, error) {
	asked := w.now()
	var raised target.Raised
	ref := target.Ref{ScaleTargetRef: es.Spec.ScaleTargetRef, Namespace: es.Namespace}
	raise := func(es *v1alpha1.ElasticService) (err error) {
		defer w.Raises.Begin()()
		want := w.wanted(ctx, es)
		want.Asleep = es.Status.Phase == v1alpha1.PhaseAsleep
		raised, err = w.scaler.RaiseTo(ctx, ref, want)
		if errors.Is(err, target.ErrForbidden) {
			// Only a wake finds that out: the operator may be allowed to read the scale.
			w.events.Eventf(es, nil, corev1.EventTypeWarning, reasons.TargetForbidden, "Wake",
				"%s, and the operator %.600s: let it scale %s.", waiting(count), err, ref)
		}
		return err
	}
	// By the cache, which is enough to scale up first: the player waits for the pod, and the
	// stamp afterwards returns the actual state.
	first := es.Status.Phase == v1alpha1.PhaseAsleep || es.Status.Phase == ""
	skipped := false
	if first {
		if raised, skipped = w.raisedBefore(es); !skipped {
			if err := raise(es); err != nil {
				return informerapi.WakeResponse{}, err
			}
			w.noteRaised(es, raised)
		}
		// The player waits for the pod, and the stamp for others' pods.
		w.Raises.Wait(ctx)
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"lastWakeTime": metav1.NewMicroTime(asked)}})
	if err != nil {
		return informerapi.WakeResponse{}, fmt.Errorf("encode the wake of ElasticService %s: %w", client.ObjectKeyFromObject(es), err)
	}
	stamped := es.DeepCopy()
	if err := w.client.Status().Patch(ctx, stamped, client.RawPatch(types.MergePatchType, body)); err != nil {
		return informerapi.WakeResponse{}, fmt.Errorf("stamp the wake of ElasticService %s: %w", client.ObjectKeyFromObject(es), err)
	}
	phase := stamped.Status.Phase
	// FallingAsleep: the stamp has stopped it, and the target keeps its pods.
	if (!first || skipped && sinceOf(stamped).After(sinceOf(es))) && phase != v1alpha1.PhaseFallingAsleep {
		// The cache may not have the sleep yet, nor how many replicas it ended.
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
		w.saidRaised(es)
		w.metrics.Raised(es.Namespace, es.Spec.Service)
		w.events.Eventf(es, nil, corev1.EventTypeNormal, "Waking", "Wake", "%s: scaled %s %s from %d to %d replicas.",
			waiting(count), ref.Kind, ref.Name, raised.Before, raised.After)
	}
	return answer, nil
}

// wanted is how many replicas a wake asks for. A ScaledObject of KEDA that is paused for the sleep
// is released meanwhile: no client waits for that, since one that is paused leaves the target as
// it is. The controller sees to it, too, if this fails.
func (w *Waker) wanted(ctx context.Context, es *v1alpha1.ElasticService) target.Replicas {
	if es.Spec.Autoscaler == nil {
		return target.Wanted(es)
	}
	if es.Status.PausedScaledObject != "" {
		releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTime)
		go func() {
			defer utilruntime.HandleCrash()
			defer cancel()
			_ = w.Autoscalers.Release(releasing, es.DeepCopy())
		}()
	}
	return w.Autoscalers.Wanted(ctx, es)
}

// onItsWay reports whether a sleep is committed whose target may still be scaled to zero; the
// target was found with replicas, in this version. That write is made to one version of the
// target: a target of another version has been at zero and was woken, or isn't going there. The
// operator that committed the sleep may have ended before the write; only this replica's own
// clock can show that.
func (w *Waker) onItsWay(es *v1alpha1.ElasticService, version string) bool {
	asleep := es.Status.AsleepTarget
	if asleep == nil || asleep.ResourceVersion != version {
		return false
	}
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	met, ok := w.met.get(es.UID)
	if !ok || met.version != version {
		met = metSleep{version, now}
	}
	w.met.set(now, es.UID, met)
	return now.Sub(met.at) < commitTime
}

// raisedBefore is how a target was scaled up here a moment ago, for the same sleep.
func (w *Waker) raisedBefore(es *v1alpha1.ElasticService) (target.Raised, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, ok := w.raised.get(es.UID)
	return was.raised, ok && w.now().Sub(was.at) < raisedTime && was.phaseSince.Equal(sinceOf(es))
}

// noteRaised remembers how a target was scaled up. One that had replicas is looked at again: a sleep
// may be about to end them.
func (w *Waker) noteRaised(es *v1alpha1.ElasticService, raised target.Raised) {
	if raised.Before > 0 || raised.After == 0 {
		return
	}
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raised.set(now, es.UID, raisedTarget{at: now, phaseSince: sinceOf(es), raised: raised})
}

// saidRaised notes that it was said that a target was scaled up.
func (w *Waker) saidRaised(es *v1alpha1.ElasticService) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, ok := w.raised.get(es.UID); ok {
		was.raised.Before = was.raised.After
		w.raised.set(w.now(), es.UID, was)
	}
}

// keep remembers an answer.
func (w *Waker) keep(uid types.UID, wake recentWake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recent.set(wake.at, uid, wake)
}

// waiting describes how many clients wait.
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
