package elasticservice

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/namespaces"
	"dormouse.dev/dormouse/operator/internal/autoscaler"
	"dormouse.dev/dormouse/operator/internal/elasticservice/affected"
	"dormouse.dev/dormouse/operator/internal/elasticservice/lookout"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/raising"
	"dormouse.dev/dormouse/operator/internal/resolverports"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/savings"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/times"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// fieldOwner is the owner of the fields that the controller applies.
const fieldOwner = "dormouse-operator"

// missingRetry is how often the controller looks for a target that isn't there: its kind may not be
// watched.
const missingRetry = 30 * time.Second

// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=services,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups="*",resources="*/scale",verbs=get;update;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",namespace=dormouse-system,resources=pods,verbs=list;watch

// Reconciler moves ElasticServices between awake and asleep.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Targets tells when targets change.
	Targets Targets
	// Scaler reads and writes the targets' scale.
	Scaler *target.Scaler
	// WakeScaler wakes what something keeps awake, as a client would; nil: the Scaler does.
	WakeScaler WakeScaler
	// Resolvers are the resolver pods.
	Resolvers resolvers.Pods
	// Namespaces are those whose objects count; empty: all.
	Namespaces namespaces.List
	// Triggers asks the idle triggers.
	Triggers *trigger.Poller
	// Players knows who plays on a Fleet's Servers.
	Players Players
	// Allocations knows which targets Allocations use; nil: none does.
	Allocations Allocations
	// Raises are those for clients, which a pass lets go first: it comes again meanwhile. Nil: there are
	// none.
	Raises *raising.Raises
	// Autoscalers reads what sets the targets' replicas, and pauses it.
	Autoscalers *autoscaler.Autoscalers
	// Events takes the events for users.
	Events events.EventRecorder
	// Metrics counts; nil: nothing is counted.
	Metrics *metrics.Controller
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	// Ports assigns resolver ports, those of fronts included; nil: the controller makes an
	// allocator of its own.
	Ports *resolverports.Allocator
	// Prices are what the administrator pays.
	Prices savings.Prices
	// Now is the clock.
	Now func() time.Time
	// Notify asks for a pass of an ElasticService. Any goroutine may call it.
	Notify func(types.NamespacedName)

	lookouts *lookout.Lookouts
	states   kit.States[state]
	// backlog has the passes that nobody waits for, and firsts the first ones of a new leader.
	backlog, firsts *kit.Backlog
	// echoes are the slices that were written for services at rest.
	echoes endpoints.Echoes
	// passes let raises go first.
	passes raising.Passes
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	if r.Ports == nil {
		r.Ports = resolverports.New(r.Client, 0)
	}
	if r.WakeScaler == nil {
		r.WakeScaler = r.Scaler
	}
	r.lookouts = lookout.New(r.Notify)
	r.backlog, r.firsts = kit.NewBacklog(maxBacklog), kit.NewBacklog(maxFirsts)
	r.passes.Raises = r.Raises
	r.states = kit.States[state]{Dropped: r.dropped}
	if r.Now == nil {
		r.Now = time.Now
	}
}

// pass is one pass over an ElasticService.
type pass struct {
	// original is the ElasticService as it was read, and es as the pass changes it.
	original, es *v1alpha1.ElasticService
	// state is the memory of it between passes.
	state *state
	// now is when the pass observed, or later asked who plays.
	now time.Time
	// observed is what the pass began with, found is what it has found out since, and plan is
	// what it decided by both.
	observed planner.Observed
	found    planner.Findings
	plan     planner.Plan
	// raised is when the target was scaled up because something keeps the service awake; zero
	// where it wasn't.
	raised time.Time
	// applied is when the plan was applied.
	applied time.Time
}

// Reconcile brings one ElasticService to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	end, endFirst := r.backlog.Begin(req), r.firsts.Begin(req)
	if again := r.passes.Again(req.NamespacedName, func() raising.Work { return r.passWork(ctx, req) }); again > 0 {
		return reconcile.Result{RequeueAfter: again}, nil // and it keeps its place until then
	}
	defer end()
	defer endFirst()
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	r.Ports.LearnOnce(ctx)
	if r.Allocations != nil {
		if err := r.Allocations.WaitSynced(ctx); err != nil {
			return reconcile.Result{}, fmt.Errorf("reconcile ElasticService %s: %w", req, err)
		}
	}
	es := &v1alpha1.ElasticService{}
	if err := r.Client.Get(ctx, req.NamespacedName, es); err != nil {
		r.Triggers.Forget(req.NamespacedName)
		if apierrors.IsNotFound(err) {
			r.states.Forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	m := r.states.Of(req.NamespacedName, es.UID)
	original := m.newest(r.Now(), es)
	if !original.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(original, wellknown.ElasticServiceFinalizer) {
		r.states.Forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if !controllerutil.ContainsFinalizer(original, wellknown.ElasticServiceFinalizer) {
		original = original.DeepCopy()
		if err := r.addFinalizer(ctx, m, original); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	es = original.DeepCopy()
	if stale, err := r.stale(ctx, es); err != nil {
		return reconcile.Result{}, err
	} else if stale {
		return reconcile.Result{RequeueAfter: kit.StaleRetry}, nil
	}
	if !es.DeletionTimestamp.IsZero() {
		if released, err := r.released(ctx, es); released || err != nil {
			return reconcile.Result{}, err
		}
	}

	// Observe, and prepare what a plan builds on.
	o, err := r.observe(ctx, es, m)
	if errors.Is(err, errBehind) {
		return reconcile.Result{RequeueAfter: kit.StaleRetry}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	p := &pass{original: original, es: es, state: m, now: r.Now(), observed: o}
	blocked, err := r.prepare(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	if blocked != nil && es.DeletionTimestamp.IsZero() {
		return r.stop(ctx, p, blocked)
	}

	// Plan. All replicas are asked who plays only where a sleep depends on nothing else; then it
	// is planned again with the answer.
	p.plan = planner.Make(p.now, p.es, p.observed, p.found)
	if p.plan.Idle.AskPlayers {
		p.observed = r.askPlayers(ctx, p.es, p.observed)
		p.now = r.Now()
		p.plan = planner.Make(p.now, p.es, p.observed, p.found)
	}

	// Apply the plan, and write the status.
	if result, ended, err := r.apply(ctx, p); ended || err != nil {
		return result, err
	}
	return r.updateStatus(ctx, p)
}

// stale reports whether the cache lags where that could cost somebody a server: a sleep that
// another leader began may be over, the target up again, and pods from before it still there.
func (r *Reconciler) stale(ctx context.Context, es *v1alpha1.ElasticService) (bool, error) {
	if es.Status.Phase != v1alpha1.PhaseFallingAsleep || r.stateOf(es).sleepBegun != nil {
		return false, nil
	}
	live := &v1alpha1.ElasticService{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(es), live); apierrors.IsNotFound(err) {
		return true, nil
	} else if err != nil {
		return false, fmt.Errorf("read ElasticService %s again: %w", client.ObjectKeyFromObject(es), err)
	}
	return live.ResourceVersion != es.ResourceVersion, nil
}

func (r *Reconciler) addFinalizer(ctx context.Context, m *state, es *v1alpha1.ElasticService) error {
	if err := kit.AddFinalizer(ctx, r.Client, es, wellknown.ElasticServiceFinalizer); err != nil {
		return fmt.Errorf("add the finalizer to ElasticService %s: %w", client.ObjectKeyFromObject(es), err)
	}
	m.wrote(es)
	return nil
}

// justSlept is how long after a sleep its pods may still be there, and a pass lets clients go to those that
// stay: as long as Kubernetes lets them take to end.
const justSlept = 30 * time.Second

// passWork is what a pass is for others' raises. One in turn with all others is one of a few already.
func (r *Reconciler) passWork(ctx context.Context, req reconcile.Request) raising.Work {
	es := &v1alpha1.ElasticService{}
	// The object is only read.
	if r.backlog.Took(req) || r.firsts.Took(req) || r.Client.Get(ctx, req.NamespacedName, es, client.UnsafeDisableDeepCopy) != nil {
		return raising.Prompt
	}
	return r.workOf(ctx, es)
}

// workOf is what a pass of an ElasticService is for others' raises. One that sleeps or wakes can wait for
// those, unless clients get pods from before the sleep by that pass. Those that wake together wake each other
// by their passes, one after the other, and wait for nothing.
func (r *Reconciler) workOf(ctx context.Context, es *v1alpha1.ElasticService) raising.Work {
	s := &es.Status
	switch {
	case len(es.Spec.WakeWith) > 0, len(affected.Finder{Client: r.Client}.ByWakeWith(ctx, es)) > 0:
		return raising.Urgent
	case s.Phase != v1alpha1.PhaseAsleep && s.Phase != v1alpha1.PhaseWaking, !es.DeletionTimestamp.IsZero(),
		len(s.PodsBeforeSleep) > 0 && r.Now().Sub(times.Micro(s.LastSleepTime)) < justSlept:
		return raising.Prompt
	}
	return raising.Patient
}
