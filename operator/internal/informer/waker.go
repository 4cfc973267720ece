package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
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

// ErrAgain means that the wake takes longer than its caller waits: the caller must call again, and mostly
// the wake goes on meanwhile.
var ErrAgain = errors.New("the wake takes long")

// ErrTargetTaken means that an older ElasticService has the target, which only that one's clients wake.
var ErrTargetTaken = errors.New("an older ElasticService has the target")

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

// memoryTime is how long a service is remembered after the last wake call. While clients wait,
// there is one each second.
const memoryTime = time.Minute

// raisedTime is for how long a target that was scaled up here isn't looked at again where the cache still
// shows the sleep: while the API server is busy, callers come again before all is written. That may wait
// three seconds for others' raises and turnTime for its turn, and take wakeTime then.
const raisedTime = 15 * time.Second

// turnTime bounds how long a wake waits for its turn to scale its target up, or to stamp, and wakeTime
// bounds each of these from its turn on. A wake goes on after its callers were told to call again: with an
// API server that takes a second for each write, one of their later calls finds it done.
const turnTime, wakeTime = 5 * time.Second, 3 * time.Second

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
	// Raises give each target that is scaled up its turn; nil: each is at once.
	Raises *raising.Raises

	client  client.Client
	scaler  Scaler
	events  events.EventRecorder
	metrics *metrics.Informer
	now     func() time.Time

	// stamps have their turns, too: those of a storm come all at once, when its targets are scaled.
	stamps   *raising.Raises
	flight   singleflight.Group
	services memory[service]
}

// service is what a Waker remembers of an ElasticService. Only its wake uses it, of which there is
// one at a time.
type service struct {
	// answer is the last one, when it was given, and when the phase began that its wake found: a
	// newer phase invalidates it.
	answer     informerapi.WakeResponse
	answered   time.Time
	phaseSince time.Time
	// raised is how the target was scaled up, when, and in the phase that began when.
	raised   target.Raised
	raisedAt time.Time
	raisedIn time.Time
	// asleepAs is the version of a target that seemed to be about to go to zero, and met is when
	// that was first seen.
	asleepAs string
	met      time.Time
}

// NewWaker makes a Waker. m may be nil.
func NewWaker(c client.Client, r Scaler, e events.EventRecorder, m *metrics.Informer) *Waker {
	return &Waker{client: c, scaler: r, events: e, metrics: m, now: time.Now, stamps: raising.New(), services: memory[service]{keep: memoryTime}}
}

// Wake wakes a service. The answer's phase is Asleep only when the sleep has just been
// committed and the target is not at zero yet: the caller must hold its clients and call again.
// A request that is Async and has the target scaled up from zero is answered before the wake is stamped, and
// the answer says so by its LastWakeTime. Callers who join a wake that is under way wait for its stamp.
func (w *Waker) Wake(ctx context.Context, r informerapi.WakeRequest) (informerapi.WakeResponse, error) {
	var es *v1alpha1.ElasticService
	if w.Namespaces.Has(r.Namespace) {
		var err error
		// It is only read.
		if es, err = index.ForService(ctx, w.client, r.Namespace, r.Svc); err != nil {
			return informerapi.WakeResponse{}, err
		}
	}
	if es == nil {
		return informerapi.WakeResponse{}, fmt.Errorf("no ElasticService has Service %s/%s: %w", r.Namespace, r.Svc, ErrUnknownService)
	}
	if taken, err := w.targetTaken(ctx, es); err != nil {
		return informerapi.WakeResponse{}, err
	} else if taken {
		return informerapi.WakeResponse{}, fmt.Errorf("wake ElasticService %s: %w", client.ObjectKeyFromObject(es), ErrTargetTaken)
	}
	if wake := es.Spec.Wake; wake != nil && wake.When == v1alpha1.WakeOnNever {
		return unwoken(es, ErrNeverWakes)
	}
	if _, kept := es.Annotations[wellknown.KeepAsleepUntilAnnotation]; kept {
		if until, err := maintenance.Until(es.Annotations); err == nil && w.now().Before(until) {
			return unwoken(es, ErrKeptAsleep)
		}
	}
	var raised chan informerapi.WakeResponse // nil: the answer comes at the end
	if r.Async {
		raised = make(chan informerapi.WakeResponse, 1)
	}
	done := w.flight.DoChan(string(es.UID), func() (any, error) {
		return w.wake(context.WithoutCancel(ctx), es, r.Count, raised)
	})
	select {
	case answer := <-raised:
		return answer, nil
	case result := <-done:
		if result.Err != nil {
			return informerapi.WakeResponse{}, result.Err
		}
		return result.Val.(informerapi.WakeResponse), nil
	case <-ctx.Done():
		return informerapi.WakeResponse{}, fmt.Errorf("wake ElasticService %s: %w: %w", client.ObjectKeyFromObject(es), ErrAgain, ctx.Err())
	}
}

// targetTaken reports whether an older ElasticService has the target.
func (w *Waker) targetTaken(ctx context.Context, es *v1alpha1.ElasticService) (bool, error) {
	sharing, err := index.OfTarget(ctx, w.client, es.Namespace, index.TargetOf(es))
	for i := range sharing {
		if other := &sharing[i]; other.UID != es.UID && index.OlderThan(other, es) && target.Same(other.Spec.ScaleTargetRef, es.Spec.ScaleTargetRef) {
			return true, nil
		}
	}
	return false, err
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

// wake raises the target, and stamps the wake: it writes lastWakeTime. A recent answer does for both. Early is
// nil, or takes the answer to an Async request once the target is scaled up from zero.
func (w *Waker) wake(ctx context.Context, es *v1alpha1.ElasticService, count int, early chan<- informerapi.WakeResponse) (informerapi.WakeResponse, error) {
	asked, since := w.now(), ptr.Deref(es.Status.PhaseSince, metav1.MicroTime{}).Time
	m := w.services.of(asked, es.UID)
	if asked.Sub(m.answered) <= remember && !since.After(m.phaseSince) {
		return m.answer, nil
	}
	stamp := asked.Truncate(time.Microsecond) // as the status has it
	var raised target.Raised
	// By the cache, which is enough to scale up first: the player waits for the pod, and the
	// stamp afterwards returns the actual state.
	first := es.Status.Phase == v1alpha1.PhaseAsleep || es.Status.Phase == ""
	skipped := first && asked.Sub(m.raisedAt) < raisedTime && m.raisedIn.Equal(since)
	switch {
	case skipped:
		raised = m.raised
	case first:
		var err error
		if raised, err = w.raise(ctx, es, count); err != nil {
			return informerapi.WakeResponse{}, err
		}
		// One that had replicas is looked at again: a sleep may be about to end them.
		if raised.Before == 0 && raised.After > 0 {
			m.raised, m.raisedAt, m.raisedIn = raised, w.now(), since
			if early != nil {
				early <- informerapi.WakeResponse{Phase: string(v1alpha1.PhaseWaking), Replicas: raised.After, LastWakeTime: &stamp}
			}
		}
	}
	// The player waits for the pod, and the stamp for others' pods, which mostly takes less. Where the target was
	// at zero there is no sleep left that the stamp could stop. A service with others in spec.wakeWith has no time
	// for this: they wake with the stamp.
	work := raising.Urgent
	if first && len(es.Spec.WakeWith) == 0 {
		work = raising.Prompt
		if skipped || raised.Before == 0 {
			work = raising.Patient
		}
	}
	stamped, err := w.stamp(ctx, es, stamp, work)
	if err != nil {
		return informerapi.WakeResponse{}, err
	}
	phase, now := stamped.Status.Phase, ptr.Deref(stamped.Status.PhaseSince, metav1.MicroTime{}).Time
	// FallingAsleep: the stamp has stopped it, and the target keeps its pods.
	if (!first || skipped && now.After(since)) && phase != v1alpha1.PhaseFallingAsleep {
		// The cache may not have the sleep yet, nor how many replicas it ended.
		if raised, err = w.raise(ctx, stamped, count); err != nil {
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
	case phase == v1alpha1.PhaseAsleep && raised.Before > 0 && m.onItsWay(w.now(), stamped, raised.Version):
		return informerapi.WakeResponse{Phase: string(v1alpha1.PhaseAsleep), Replicas: raised.After}, nil
	}
	m.answer, m.answered, m.phaseSince = answer, w.now(), now
	if raised.After > raised.Before {
		m.raised.Before = m.raised.After // it is said once
		w.metrics.Raised(es.Namespace, es.Spec.Service)
		w.events.Eventf(es, nil, corev1.EventTypeNormal, "Waking", "Wake", "%s: scaled %s %s from %d to %d replicas.",
			waiting(count), es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name, raised.Before, raised.After)
	}
	return answer, nil
}

// stamp writes down when the wake was asked for, and returns the ElasticService as it is then. Unless it is
// urgent it lets others' targets be scaled up first, and has its turn.
func (w *Waker) stamp(ctx context.Context, es *v1alpha1.ElasticService, asked time.Time, work raising.Work) (*v1alpha1.ElasticService, error) {
	if work != raising.Urgent {
		w.Raises.Wait(ctx, work)
		turn, cancel := context.WithTimeout(ctx, turnTime)
		end, err := w.stamps.Begin(turn, es.Namespace)
		if cancel(); err != nil {
			return nil, w.putOff(es, err)
		}
		defer end()
	}
	ctx, cancel := context.WithTimeout(ctx, wakeTime)
	defer cancel()
	key := client.ObjectKeyFromObject(es)
	body, err := json.Marshal(map[string]any{"status": map[string]any{"lastWakeTime": metav1.NewMicroTime(asked)}})
	if err != nil {
		return nil, fmt.Errorf("encode the wake of ElasticService %s: %w", key, err)
	}
	stamped := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := w.client.Status().Patch(ctx, stamped, client.RawPatch(types.MergePatchType, body)); err != nil {
		return nil, fmt.Errorf("stamp the wake of ElasticService %s: %w", key, err)
	}
	return stamped, nil
}

// putOff counts a wake whose turn didn't come, and is its answer.
func (w *Waker) putOff(es *v1alpha1.ElasticService, err error) error {
	why := metrics.TurnLate
	if errors.Is(err, raising.ErrFull) {
		why = metrics.QueueFull
	}
	w.metrics.PutOff(why)
	return fmt.Errorf("wake ElasticService %s: %w: %w", client.ObjectKeyFromObject(es), ErrAgain, err)
}

// raise scales the target up for so many clients. A ScaledObject of KEDA that is paused for the sleep
// is released meanwhile: no client waits for that, since one that is paused leaves the target as
// it is. The controller sees to it, too, if this fails.
func (w *Waker) raise(ctx context.Context, es *v1alpha1.ElasticService, count int) (target.Raised, error) {
	turn, cancel := context.WithTimeout(ctx, turnTime)
	end, err := w.Raises.Begin(turn, es.Namespace)
	if cancel(); err != nil {
		return target.Raised{}, w.putOff(es, err)
	}
	defer end()
	ctx, cancel = context.WithTimeout(ctx, wakeTime)
	defer cancel()
	if es.Status.PausedScaledObject != "" && es.Spec.Autoscaler != nil {
		releasing, released := context.WithTimeout(context.WithoutCancel(ctx), wakeTime)
		go func() {
			defer utilruntime.HandleCrash()
			defer released()
			_ = w.Autoscalers.Release(releasing, es.DeepCopy())
		}()
	}
	want := target.Wanted(es)
	if es.Spec.Autoscaler != nil {
		want = w.Autoscalers.Wanted(ctx, es)
	}
	want.Asleep = es.Status.Phase == v1alpha1.PhaseAsleep
	ref := target.Ref{ScaleTargetRef: es.Spec.ScaleTargetRef, Namespace: es.Namespace}
	raised, err := w.scaler.RaiseTo(ctx, ref, want)
	if errors.Is(err, target.ErrForbidden) {
		// Only a wake finds that out: the operator may be allowed to read the scale.
		w.events.Eventf(es, nil, corev1.EventTypeWarning, reasons.TargetForbidden, "Wake",
			"%s, and the operator %.600s: let it scale %s.", waiting(count), err, ref)
	}
	return raised, err
}

// onItsWay reports whether a sleep is committed whose target may still be scaled to zero; the
// target was found with replicas, in this version. That write is made to one version of the
// target: a target of another version has been at zero and was woken, or isn't going there. The
// operator that committed the sleep may have ended before the write; only this replica's own
// clock can show that.
func (m *service) onItsWay(now time.Time, es *v1alpha1.ElasticService, version string) bool {
	asleep := es.Status.AsleepTarget
	if asleep == nil || asleep.ResourceVersion != version {
		return false
	}
	if m.met.IsZero() || m.asleepAs != version {
		m.asleepAs, m.met = version, now
	}
	return now.Sub(m.met) < commitTime
}

// waiting describes how many clients wait.
func waiting(count int) string {
	if count == 1 {
		return "1 client waits"
	}
	return fmt.Sprintf("%d clients wait", count)
}
