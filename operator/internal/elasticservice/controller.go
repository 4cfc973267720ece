package elasticservice

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/namespaces"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

// fieldOwner is the owner of the fields that the controller applies.
const fieldOwner = "dormouse-operator"

// missingRetry is how often a target of a kind that isn't watched is looked for.
const missingRetry = 30 * time.Second

// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=services,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups="*",resources="*/scale",verbs=get;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",namespace=dormouse-system,resources=pods,verbs=list;watch

// Reconciler moves ElasticServices between awake and asleep.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Scaler reads and writes the targets' scale.
	Scaler *target.Scaler
	// Resolvers asks resolver pods.
	Resolvers *resolvers.Observer
	// Namespaces are those whose objects count; empty: all.
	Namespaces namespaces.List
	// Triggers asks the idle triggers.
	Triggers *trigger.Poller
	// Players tells who plays on a Fleet's Servers.
	Players Players
	// Events takes what a person would ask about.
	Events events.EventRecorder
	// Metrics counts; nil counts nothing.
	Metrics *metrics.Controller
	// Reporter is told of errors and panics; nil tells nobody.
	Reporter *errortracking.Reporter
	// Namespace is where the resolver pods are.
	Namespace string
	// ResolverSelector finds them there.
	ResolverSelector labels.Selector
	// MaxPortsPerNamespace is how many resolver ports a namespace's ElasticServices, and its
	// fronts, may have together; 0: any number.
	MaxPortsPerNamespace int
	// Now is the clock.
	Now func() time.Time
	// Notify asks for a pass of an ElasticService, from any goroutine.
	Notify func(types.NamespacedName)

	ports    *allocator
	looks    *lookouts
	learn    sync.Once
	mu       sync.Mutex
	memories map[types.NamespacedName]*memory
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	r.ports = newAllocator(r.MaxPortsPerNamespace)
	r.memories = map[types.NamespacedName]*memory{}
	r.looks = newLookouts(r.Notify)
	if r.Now == nil {
		r.Now = time.Now
	}
}

// Reconcile brings one ElasticService to where it should be.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.learn.Do(func() { r.learnPorts(ctx) })
	es := &v1alpha1.ElasticService{}
	if err := r.Client.Get(ctx, req.NamespacedName, es); err != nil {
		r.Triggers.Forget(req.NamespacedName)
		r.Metrics.Forget(req.Namespace, req.Name)
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !controllerutil.ContainsFinalizer(es, v1alpha1.ElasticServiceFinalizer) {
		if !es.DeletionTimestamp.IsZero() {
			r.forget(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return afterConflict(reconcile.Result{}, r.addFinalizer(ctx, es))
	}
	result, err := r.reconcile(ctx, es.DeepCopy())
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// The ElasticService is about to be deleted, too.
		return reconcile.Result{RequeueAfter: missingRetry}, nil
	}
	return afterConflict(result, err)
}

// afterConflict has a pass that wrote to an object which had changed come again soon:
// somebody, likely a wake, wrote first, and the cache will tell what.
func afterConflict(result reconcile.Result, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	return result, err
}

// staleRetry is when to look again where the cache is behind.
const staleRetry = 20 * time.Millisecond

// behind reports whether the cache is behind where that would cost somebody a server: a
// sleep that another leader has begun may be over, with a target that is up again and pods
// from before.
func (r *Reconciler) behind(ctx context.Context, es *v1alpha1.ElasticService) (bool, error) {
	if es.Status.Phase != v1alpha1.PhaseFallingAsleep || r.memoryOf(es).sleepBegun != nil {
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

func (r *Reconciler) reconcile(ctx context.Context, es *v1alpha1.ElasticService) (reconcile.Result, error) {
	original := es.DeepCopy()
	if behind, err := r.behind(ctx, es); err != nil {
		return reconcile.Result{}, err
	} else if behind {
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	if !es.DeletionTimestamp.IsZero() {
		if released, err := r.released(ctx, es); released || err != nil {
			return reconcile.Result{}, err
		}
	}
	o, err := r.observe(ctx, es)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.Now()
	if !es.DeletionTimestamp.IsZero() {
		if o.namespaceEnding, err = r.namespaceEnding(ctx, es.Namespace); err != nil {
			return reconcile.Result{}, err
		}
	}
	former, err := r.wakeFormer(ctx, now, es)
	if err != nil {
		return reconcile.Result{}, err
	}
	o.former = former != nil
	ob, err := r.prepare(ctx, now, es, &o)
	if o.flaw == nil {
		o.flaw = former
	}
	if o.flaw == nil {
		o.flaw = strangersFlaw(es, o)
	}
	if ob == nil && err == nil {
		r.keepFront(ctx, now, es, &o)
	} else {
		refreshFront(es, o.front.service)
	}
	if err != nil && !o.namespaceEnding && !patienceOver(now, es) {
		return reconcile.Result{}, err
	}
	if ob != nil && es.DeletionTimestamp.IsZero() {
		return r.stop(ctx, now, original, es, o, ob)
	}

	o.neverStarted = ob != nil && es.Status.Phase == ""
	p := makePlan(now, es, o)
	if p.idle.askPlayers {
		r.askPlayers(ctx, es, &o)
		now = r.Now()
		p = makePlan(now, es, o)
	}
	if p.raise {
		if _, err := r.Scaler.RaiseTo(ctx, refOf(es), Wanted(es)); err != nil && !p.release {
			return reconcile.Result{}, fmt.Errorf("wake the target of the deleted ElasticService: %w", err)
		}
	}
	if p.release {
		return reconcile.Result{}, r.release(ctx, es, o)
	}
	if o.service != nil {
		err := r.applySlices(ctx, es, o, p)
		if refusal.Is(err) && es.DeletionTimestamp.IsZero() {
			return r.stop(ctx, now, original, es, o, &obstacle{v1alpha1.ReasonRefused, fmt.Sprintf(
				"The API server refuses the EndpointSlices of Service %s (%s), so that they stay as they are: change what refuses them.",
				o.service.Name, refusal.Words(err))})
		}
		if err != nil {
			return reconcile.Result{}, err
		}
		if flaw := r.removeLeftovers(ctx, es, o); flaw != nil && o.flaw == nil {
			o.flaw = flaw
		}
	}
	written := r.Now()
	if p.commit {
		return r.commitSleep(ctx, es, o)
	}
	o.cause = r.diagnose(ctx, now, es, o, &p)
	if err := r.writeStatus(ctx, now, original, es, o, p); err != nil {
		return reconcile.Result{}, err
	}
	r.timeWake(ctx, now, written, es, o, p)
	if o.scale.err != nil || o.flaw != nil {
		p.again(missingRetry)
	}
	return reconcile.Result{RequeueAfter: p.requeue}, nil
}

// prepare keeps what the plan builds on: the resolver ports and the private
// Service. It says what stands in the way of all else. What doesn't is noted as a flaw.
func (r *Reconciler) prepare(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, o *observed) (*obstacle, error) {
	if ob := checkService(es, *o); ob != nil {
		return ob, nil
	}
	ports, flaw := planPorts(now, es, o.service, r.ports, func(port int32) bool { return r.portInSlice(ctx, port) })
	if len(ports) == 0 {
		return flaw, nil
	}
	es.Status.Ports, o.flaw = ports, flaw
	r.memoryOf(es).keepPorts(ports)

	if o.scale.err != nil && len(o.service.Spec.Selector) == 0 {
		return nil, nil // the selector is not known; TargetFound says why
	}
	ob, err := r.keepPrivateService(ctx, es, *o)
	if err != nil || ob == nil {
		return nil, err
	}
	if es.Status.Phase == "" {
		return ob, nil // nobody counts on Dormouse yet
	}
	o.flaw = ob
	return nil, nil
}

// keepPrivateService makes the private Service what it should be, and says what stands in
// the way.
func (r *Reconciler) keepPrivateService(ctx context.Context, es *v1alpha1.ElasticService, o observed) (*obstacle, error) {
	selector, ob := podSelector(o.service, o.scale.selector)
	if ob != nil {
		return ob, nil
	}
	desired := desiredPrivateService(es, o.service, selector)
	es.Status.PrivateService = desired.Name
	if o.private != nil && !metav1.IsControlledBy(o.private, es) {
		return &obstacle{v1alpha1.ReasonNameTaken, fmt.Sprintf(
			"Dormouse needs a Service named %s and somebody else's is there: delete or rename it.", desired.Name)}, nil
	}
	if o.private != nil && samePrivateService(o.private, desired) {
		return nil, nil
	}
	err := patch.Apply(ctx, r.Client, fieldOwner, desired)
	if refusal.Is(err) {
		return &obstacle{v1alpha1.ReasonRefused, fmt.Sprintf(
			"The API server refuses the Service %s, by which Dormouse finds the target's pods (%s): change what refuses it.", desired.Name, refusal.Words(err))}, nil
	}
	return nil, err
}

// stop reports an obstacle and leaves everything else as it is.
func (r *Reconciler) stop(ctx context.Context, now time.Time, original, es *v1alpha1.ElasticService, o observed, ob *obstacle) (reconcile.Result, error) {
	setStatus(now, es, o, plan{phase: es.Status.Phase, mode: es.Status.Mode}, ob)
	if _, err := patch.Status(ctx, r.Client, original, es); err != nil {
		return reconcile.Result{}, err
	}
	r.memoryOf(es).stayAwake()
	r.tellObstacle(es, ob)
	if next := o.unsettled.next; !next.IsZero() {
		return reconcile.Result{RequeueAfter: min(max(next.Sub(now), askSoon), missingRetry)}, nil
	}
	return reconcile.Result{RequeueAfter: missingRetry}, nil
}

// tellObstacle tells of an obstacle once; nil is none.
func (r *Reconciler) tellObstacle(es *v1alpha1.ElasticService, ob *obstacle) {
	m, message := r.memoryOf(es), ""
	if ob != nil {
		message = ob.message
	}
	if m.lastObstacle == message {
		return
	}
	if m.lastObstacle = message; ob != nil {
		emit(r.Events, es, []notice{obstacleEvent(*ob)})
	}
}

func (r *Reconciler) writeStatus(ctx context.Context, now time.Time, original, es *v1alpha1.ElasticService, o observed, p plan) error {
	m := r.memoryOf(es)
	before := original.Status.Phase
	setStatus(now, es, o, p, nil)
	if p.phase != v1alpha1.PhaseFallingAsleep {
		m.stayAwake()
	}
	if _, err := patch.Status(ctx, r.Client, original, es); err != nil {
		return err
	}
	m.target = refOf(es)
	m.lastSleep.wrote(&es.Status)
	if p.phase == v1alpha1.PhaseFallingAsleep && before != p.phase {
		begun := microTime(es.Status.LastWakeTime)
		m.sleepBegun = &begun
	}
	if before != p.phase {
		r.Metrics.PhaseChanged(es.Namespace, es.Name, string(p.phase))
	}
	r.tellObstacle(es, o.flaw)
	emit(r.Events, es, phaseEvents(before, es, p))
	emit(r.Events, es, conditionEvents(original, es))
	emit(r.Events, es, resolverEvents(original, es))
	emit(r.Events, es, frontEvents(original, es))
	emit(r.Events, es, clashEvents(original, es))
	emit(r.Events, es, m.diagnosis.events(original, es, o.cause))
	return nil
}

func (r *Reconciler) addFinalizer(ctx context.Context, es *v1alpha1.ElasticService) error {
	changed := es.DeepCopy()
	controllerutil.AddFinalizer(changed, v1alpha1.ElasticServiceFinalizer)
	if err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(es, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("add the finalizer to ElasticService %s: %w", client.ObjectKeyFromObject(es), err)
	}
	return nil
}

// learnPorts takes in all ports that are given out, oldest objects first, so
// that of two with one port the older keeps it.
func (r *Reconciler) learnPorts(ctx context.Context) {
	var list v1alpha1.ElasticServiceList
	if err := r.Client.List(ctx, &list); err != nil {
		return // the cache is gone, and so are we
	}
	sortByAge(list.Items)
	for _, es := range list.Items {
		for _, p := range es.Status.Ports {
			r.ports.learn(p.ResolverPort, portOwner{es.Namespace, es.UID, p.Name, p.Protocol.Transport()})
		}
		if f := es.Status.Front; f != nil {
			r.ports.learn(f.ResolverPort, frontOwner(types.NamespacedName{Namespace: f.Namespace, Name: f.Service}, f.Port))
		}
	}
}

func (r *Reconciler) portInSlice(ctx context.Context, port int32) bool {
	var list discoveryv1.EndpointSliceList
	err := r.Client.List(ctx, &list, client.MatchingFields{indexSlicePort: strconv.Itoa(int(port))}, client.Limit(1))
	return err != nil || len(list.Items) > 0
}

func refOf(es *v1alpha1.ElasticService) target.Ref {
	return target.Ref{ScaleTargetRef: es.Spec.ScaleTargetRef, Namespace: es.Namespace}
}

// Wanted is how many replicas a wake asks for.
func Wanted(es *v1alpha1.ElasticService) target.Replicas {
	if es.Spec.MinReplicas != nil {
		return target.Replicas{AtLeast: *es.Spec.MinReplicas, FromZero: *es.Spec.MinReplicas}
	}
	return target.Replicas{AtLeast: 1, FromZero: max(es.Status.ReplicasBeforeSleep, 1)}
}
