package gameautoscaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler/planner"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/scalewebhook"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/text"
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=gameautoscalers,verbs=list;watch
// +kubebuilder:rbac:groups=dormouse.dev,resources=gameautoscalers/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes;fleets,verbs=list;watch
// +kubebuilder:rbac:groups=autoscaling,resources=horizontalpodautoscalers,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Scaler reads and writes a target's scale.
type Scaler interface {
	Get(ctx context.Context, ref target.Ref) (*autoscalingv1.Scale, error)
	Set(ctx context.Context, ref target.Ref, scale *autoscalingv1.Scale, replicas int32) error
}

// Players finds the reports that all replicas of the operator recently got about the Servers of
// an owner, such as Fleet/lobbies, by the Servers' names. An error means that they aren't known.
type Players interface {
	Recent(ctx context.Context, namespace, owner string) (map[string]reportapi.RecentReport, error)
}

// Webhooks asks users' webhooks, and never blocks.
type Webhooks interface {
	Poll(s scalewebhook.Subject, every time.Duration, e scalewebhook.Endpoint, r scalewebhook.Review) scalewebhook.Result
	Forget(namespace, name string)
}

// Reconciler sets the replicas of the targets of GameAutoscalers.
type Reconciler struct {
	// Client reads from the cache, which has the indexes of packages index and report, and
	// writes to the API server.
	Client client.Client
	// Scaler writes the targets' replicas.
	Scaler Scaler
	// Players is asked before replicas change for what players do.
	Players Players
	// Webhooks asks the webhooks.
	Webhooks Webhooks
	// UsualBoot is how long the Servers of a target usually take to get Ready, 0 where that isn't
	// known; nil: it never is.
	UsualBoot func(kind, namespace, name string) time.Duration
	// Events takes the events for users.
	Events events.EventRecorder
	// Metrics counts; nil: nothing is counted.
	Metrics *metrics.Autoscalers
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	// Now is the clock; nil is the real one.
	Now func() time.Time

	states kit.States[state]
}

// state is the controller's memory of one object between passes. All of it can be lost: windows and
// delays then begin with what there is, and cooldowns with status.lastScaleTime, so that Servers are
// taken away, or added, later than they might be.
type state struct {
	// begun is set once history has begun, with what the status knew.
	begun   bool
	history planner.History
	// wrote is the last write of the target's replicas.
	wrote write
	// refusedUntil is until when a refused change of replicas isn't tried again.
	refusedUntil time.Time
	refusal      string
	// stale is set while the Servers' last reports were too old to change replicas by.
	stale bool
	// target is what all of this is about; another object of its name is the same game.
	target target.Ref
	// untold are events that are emitted once the status is written.
	untold []kit.Notice
	// wordsWritten is when the status was last written.
	wordsWritten time.Time
	// asks is set while webhooks are asked.
	asks bool
}

// write is a change of a target's replicas.
type write struct {
	from, to int32
	at       time.Time
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	if r.Now == nil {
		r.Now = time.Now
	}
}

// Reconcile evaluates one GameAutoscaler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	gas := &v1alpha1.GameAutoscaler{}
	found, err := kit.Read(ctx, r.Client, req, gas, r.states.Forget)
	if !found || !gas.DeletionTimestamp.IsZero() {
		r.Webhooks.Forget(req.Namespace, req.Name)
		return reconcile.Result{}, err
	}
	now, m, original := r.Now(), r.states.Of(req.NamespacedName, gas.UID), gas.DeepCopy()

	// Observe.
	t, obstacle, err := r.findTarget(ctx, gas)
	if err != nil {
		return reconcile.Result{}, err
	}
	if obstacle != nil {
		r.Webhooks.Forget(req.Namespace, req.Name)
		m.history = m.history.Untargeted()
		planner.SetObstacle(now, gas, obstacle)
		requeueAfter, err := r.writeStatus(ctx, now, original, gas, m)
		if err == nil {
			kit.Emit(r.Events, gas, failures(&original.Status, &gas.Status)...)
		}
		return reconcile.Result{RequeueAfter: requeueAfter}, err
	}
	memories := planner.Memories(gas)
	if m.target != t.ref {
		r.Webhooks.Forget(req.Namespace, req.Name) // what they answered is about another one
		if m.begun {
			*m, memories = state{begun: true}, nil // and so is what was learnt
		}
		m.target = t.ref
	}
	m.begin(gas)
	if m.wrote.lags(now, t.desired) {
		return reconcile.Result{RequeueAfter: kit.StaleRetry}, nil
	}
	o, err := r.observe(ctx, t)
	if err != nil {
		return reconcile.Result{}, err
	}
	var requeueAfter requeue.After
	o.Answers = r.ask(now, gas, m, t, o, &requeueAfter)

	// Plan. Replicas change by fresh reports alone, and forecasts learn from nothing else. The
	// replicas are asked for them where one of the two would happen, and while they were stale.
	p := planner.Make(now, &gas.Spec, m.history, o)
	changes := p.Desired != o.Desired && needsReports(&gas.Spec)
	if o.Desired > 0 && (m.stale || changes || p.History.Learns(m.history)) {
		o.Fresh = r.fresh(ctx, t)
		m.stale = !o.Fresh
		if !o.Fresh {
			p = planner.Make(now, &gas.Spec, m.history, o)
		}
	}

	// Apply, and write the status.
	before := m.history
	m.history = p.History
	if p.Desired != o.Desired {
		if err := r.change(ctx, now, t, m, &p); err != nil {
			m.history = before
			return reconcile.Result{}, err
		}
		if p.Desired == o.Desired { // it was refused; what was seen is remembered all the same
			m.history = m.history.Unscaled(before)
		}
	}
	if last := gas.Status.LastScaleTime; !m.wrote.at.IsZero() && (last == nil || last.Time.Before(m.wrote.at.Truncate(time.Second))) {
		gas.Status.LastScaleTime = &metav1.Time{Time: m.wrote.at.Truncate(time.Second)}
	}
	planner.SetStatus(now, gas, o, p, memories)
	wait, err := r.writeStatus(ctx, now, original, gas, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	kit.Emit(r.Events, gas, append(m.untold, failures(&original.Status, &gas.Status)...)...)
	m.untold = nil
	requeueAfter.AtMost(wait)
	requeueAfter.AtMost(p.RequeueAfter.Duration())
	return reconcile.Result{RequeueAfter: requeueAfter.Duration()}, nil
}

// change changes the target's replicas as planned. Where that is refused the plan says so instead, and
// it is tried again later.
func (r *Reconciler) change(ctx context.Context, now time.Time, t *scalable, m *state, p *planner.Plan) error {
	if left := m.refusedUntil.Sub(now); left > 0 {
		p.RequeueAfter.AtMost(left)
		p.Refuse(t.desired, m.refusal)
		return nil
	}
	err := r.scale(ctx, t, p.Desired)
	switch {
	case err == nil:
		m.wrote = write{from: t.desired, to: p.Desired, at: now}
		m.untold = append(m.untold, scaledNotice(t.desired, p))
		r.Metrics.Scaled(t.desired, p.Desired)
	case refusal.Is(err), target.IsUserError(err), errors.Is(err, target.ErrForbidden):
		m.refusedUntil, m.refusal = now.Add(refusedRetry), text.Bounded(refusal.Words(err))
		p.Refuse(t.desired, m.refusal)
		p.RequeueAfter.AtMost(refusedRetry)
	default:
		return err
	}
	return nil
}

// refusedRetry follows a refusal of the API server.
const refusedRetry = 30 * time.Second

// begin begins the history with what the status knows, once.
func (m *state) begin(gas *v1alpha1.GameAutoscaler) {
	if m.begun {
		return
	}
	m.begun = true
	m.history = planner.HistoryOf(gas)
}

// lags reports whether the cache is still about to show the last write. The wait is bounded.
func (w write) lags(now time.Time, desired int32) bool {
	return !w.at.IsZero() && desired == w.from && now.Sub(w.at) < pending.MaxLag
}

// scale writes the replicas of a target, unless they aren't what the plan assumes any more.
func (r *Reconciler) scale(ctx context.Context, t *scalable, replicas int32) error {
	scale, err := r.Scaler.Get(ctx, t.ref)
	if err != nil {
		return err
	}
	if scale.UID != t.uid || scale.Spec.Replicas != t.desired {
		return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: t.ref.Kind}, t.ref.Name,
			errors.New("its replicas have just been changed"))
	}
	if err := r.Scaler.Set(ctx, t.ref, scale, replicas); err != nil {
		return fmt.Errorf("scale %s from %d to %d Servers: %w", t.ref, t.desired, replicas, err)
	}
	return nil
}
