package elasticservice

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/status"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/savings"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/times"
)

// scaleTime bounds the write that puts a target to sleep.
const scaleTime = time.Second

// commitSleep writes phase Asleep under the resourceVersion of a live read, in
// which no wake was stamped since the sleep began, and then scales the target to
// zero. A wake that comes in between makes the first write fail; one that comes
// after it sees phase Asleep and scales the target up again.
func (r *Reconciler) commitSleep(ctx context.Context, pass *pass) (reconcile.Result, error) {
	es, o := pass.es, pass.observed
	scale, err := r.Scaler.Get(ctx, target.Of(es))
	if err != nil {
		// The next pass says what is wrong, though the target itself may be read.
		pass.state.scale.of, pass.state.scale.scaleOnly = version{}, true
		return reconcile.Result{}, err
	}
	if idle, wait, err := r.confirmIdle(ctx, es, o); err != nil || !idle {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	live := &v1alpha1.ElasticService{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(es), live); err != nil {
		return reconcile.Result{}, fmt.Errorf("read ElasticService %s again: %w", client.ObjectKeyFromObject(es), err)
	}
	if !live.DeletionTimestamp.IsZero() || !equality.Semantic.DeepEqual(live.Spec, es.Spec) || !equality.Semantic.DeepEqual(live.Annotations, es.Annotations) || live.Status.Phase != v1alpha1.PhaseFallingAsleep ||
		!times.Micro(live.Status.LastWakeTime).Equal(*o.SleepBegun) {
		return reconcile.Result{RequeueAfter: kit.StaleRetry}, nil // the cache will show why
	}
	original := live.DeepCopy()
	p := planner.Plan{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Commit: true, Awake: pass.plan.Awake, Group: pass.plan.Group, WaitsFor: pass.plan.Group.WaitsFor}
	pods := planner.UnsettledAtZero(o.Sources)
	if err := r.addPods(ctx, live, o, &pods); err != nil {
		return reconcile.Result{}, err
	}
	requesting, all, err := r.podsOf(ctx, live, o)
	if err != nil {
		return reconcile.Result{}, err
	}
	live.Status.AsleepRequests = savings.Requests(requesting, all, scale.Spec.Replicas)
	live.Status.ReplicasBeforeSleep = scale.Spec.Replicas
	live.Status.AsleepTarget = &v1alpha1.AsleepTarget{ScaleTargetRef: live.Spec.ScaleTargetRef, Replicas: scale.Spec.Replicas, ResourceVersion: scale.ResourceVersion}
	status.Set(r.Now(), live, o.AtZero(pods), pass.found, p)
	if !r.closeAllocations(original) {
		return reconcile.Result{RequeueAfter: kit.StaleRetry}, nil // an Allocation has come meanwhile
	}
	m := pass.state
	if err := r.patchStatus(ctx, m, original, live); err != nil {
		return reconcile.Result{}, err
	}
	r.slept(m, live)
	// A wake that finds the target as it was read above has its caller wait for this write, for
	// commitTime: it must be over by then, one way or the other.
	writing, cancel := context.WithTimeout(ctx, scaleTime)
	defer cancel()
	if err := r.Scaler.Set(writing, target.Of(es), scale, 0); err != nil {
		if writing.Err() != nil {
			made(&m.settling).flownAt = r.Now().Add(flightTime)
		} else {
			m.lastSleep.scaled = *live.Status.LastSleepTime
		}
		return reconcile.Result{}, fmt.Errorf("put the target to sleep: %w", err)
	}
	m.lastSleep.scaled = *live.Status.LastSleepTime
	r.Metrics.PhaseChanged(string(v1alpha1.PhaseAsleep))
	kit.Emit(r.Events, live, status.Asleep(es, pass.plan, scale.Spec.Replicas))
	return reconcile.Result{RequeueAfter: time.Second}, nil
}

// slept begins a new story once phase Asleep is written. A wake may come before any pass has seen the target at
// zero.
func (r *Reconciler) slept(m *state, es *v1alpha1.ElasticService) {
	m.stayAwake()
	m.wake.Slept(es)
	m.lastSleep.wrote(&es.Status)
	r.lookouts.Reset(&m.diagnosis, es.UID)
	// The watch shows the write to the scale only later: the next pass must read.
	m.scale.of = version{}
}

// confirmIdle checks once more that nobody is on the target, which a client may have reached
// past the resolver up to now; false: somebody is, or that isn't known yet, and wait is when to
// look again at the latest.
func (r *Reconciler) confirmIdle(ctx context.Context, es *v1alpha1.ElasticService, o planner.Observed) (idle bool, wait time.Duration, err error) {
	if o.Up == 0 {
		// No server runs that could report.
		pods, all, err := r.podsOf(ctx, es, o)
		if err != nil || !all {
			return false, time.Second, err
		}
		if !diagnosis.NobodyOn(pods) {
			// The last look was before one ran.
			r.lookouts.Outdate(&r.stateOf(es).diagnosis, es.UID, r.Now())
			return false, kit.StaleRetry, nil
		}
		return true, 0, nil
	}
	is := spec.Of(es)
	if is.HasTriggers {
		//nolint:contextcheck // who asks the triggers goes on when the pass has ended
		if idle, wait := r.triggersIdle(es, o); !idle {
			return false, wait, nil
		}
	}
	if is.HasPlayers {
		if idle, err := r.nobodyPlays(ctx, es); err != nil || !idle {
			return false, time.Second, err
		}
	}
	return true, 0, nil
}

// confirmTime is how old the triggers' last answers may be when a target is put to sleep.
const confirmTime = 5 * time.Second

// triggersIdle asks the triggers once more, after the last client that may have gone to a
// server past the resolver; false: not idle, or not known yet, and wait is when to look again
// at the latest. No worker waits for the pods meanwhile.
func (r *Reconciler) triggersIdle(es *v1alpha1.ElasticService, o planner.Observed) (idle bool, wait time.Duration) {
	m, now := r.stateOf(es), r.Now()
	if m.triggersSince.IsZero() {
		m.triggersSince = now
	}
	reading, read := r.Triggers.ReadSince(client.ObjectKeyFromObject(es), triggersOf(es, o), m.triggersSince)
	if !read {
		return false, confirmTime
	}
	m.triggersSince = time.Time{}
	return reading.Err == nil && !reading.BelowSince.IsZero() && now.Sub(reading.At) <= confirmTime, time.Second
}
