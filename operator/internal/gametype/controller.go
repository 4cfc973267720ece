package gametype

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/patch"
)

const (
	// staleRetry is when to look again after somebody else wrote first: the cache
	// will tell what.
	staleRetry = 20 * time.Millisecond
	// refusedRetry is when to try again what the API server has refused: a quota
	// may have room by then. Just after the CRDs were installed its admission
	// doesn't know GameTypes as owners, for some seconds.
	refusedRetry = 15 * time.Second
	// endingRetry is when to look again in a namespace that is being deleted.
	endingRetry = 30 * time.Second
	// countsPause is the least time between two writes of a status in which
	// nothing but the players changed.
	countsPause = time.Second
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes,verbs=list;watch;patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes/finalizers,verbs=update
// +kubebuilder:rbac:groups=dormouse.dev,resources=fleets,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=services,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler keeps what each GameType asks for.
type Reconciler struct {
	// Client reads from the cache, which has the indexes of SetupIndexes here and
	// of the Fleets' package, and writes to the API server. Its Services must have
	// their annotations where they have v1alpha1.GameTypeLabel.
	Client client.Client
	// Events takes what a person would ask about.
	Events events.EventRecorder
	// Reporter is told of errors and panics; nil tells nobody.
	Reporter *errortracking.Reporter
	// Now is the clock; nil is the real one.
	Now func() time.Time

	mu       sync.Mutex
	memories map[types.NamespacedName]*memory
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	r.memories = map[types.NamespacedName]*memory{}
	if r.Now == nil {
		r.Now = time.Now
	}
}

// Reconcile brings one GameType to where it should be.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	gt := &v1alpha1.GameType{}
	if err := r.Client.Get(ctx, req.NamespacedName, gt); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	do := r.reconcile
	if !gt.DeletionTimestamp.IsZero() {
		do = r.finish
	}
	result, err := do(ctx, gt)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{RequeueAfter: endingRetry}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, gt *v1alpha1.GameType) (reconcile.Result, error) {
	if err := r.setFinalizer(ctx, gt, true); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.tellSelector(ctx, gt); err != nil {
		return reconcile.Result{}, err
	}
	now, m, original := r.Now(), r.memoryOf(gt), gt.DeepCopy()
	list, err := r.owned(ctx, gt)
	if err != nil {
		return reconcile.Result{}, err
	}
	acting, found := undone(gt, list)
	fleets, again := m.observe(now, acting, list)
	if m.behind(now, gt, fleets) {
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	p := makePlan(now, &acting.Spec, fleets, m.number)
	p.undone, p.undoing = found, undoing(gt, fleets, found)
	o := r.apply(ctx, acting, m, p)
	s, err := r.keepServices(ctx, acting)
	if err != nil {
		o.failed = errors.Join(o.failed, err)
		s.ready = condition.Unknown(v1alpha1.ConditionServiceReady, v1alpha1.ReasonPending, "The Service could not be written; it is tried again.")
	}
	emit(r.Events, gt, actionEvents(p, o, s))
	p.lookAgain(again)
	if o.stale || s.stale {
		p.lookAgain(staleRetry)
	}
	if o.refused != "" || s.refused {
		p.lookAgain(refusedRetry)
	}
	if m.putOff = !m.putOff && o.failed == nil && o.wrote(); m.putOff {
		return reconcile.Result{RequeueAfter: breath}, nil
	}
	setStatus(now, gt, fleets, &p, o, s)
	if err := r.writeStatus(ctx, now, original, gt, m, &p); err != nil {
		return reconcile.Result{}, errors.Join(o.failure(gt), err)
	}
	return reconcile.Result{RequeueAfter: p.again}, o.failure(gt)
}

// finish lets a deleted GameType go once its Servers are gone. Its Fleets are
// deleted so that each stays until its last Server has; the Service and the
// ElasticService, by which players still reach those, go with the GameType.
func (r *Reconciler) finish(ctx context.Context, gt *v1alpha1.GameType) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(gt, v1alpha1.GameTypeFinalizer) {
		return reconcile.Result{}, nil
	}
	now, m, original := r.Now(), r.memoryOf(gt), gt.DeepCopy()
	list, err := r.owned(ctx, gt)
	if err != nil {
		return reconcile.Result{}, err
	}
	fleets, again := m.observe(now, gt, list)
	// Whoever asks for its dependents to be orphaned gets that.
	if len(fleets) == 0 || slices.Contains(gt.Finalizers, metav1.FinalizerOrphanDependents) {
		return reconcile.Result{}, client.IgnoreNotFound(r.setFinalizer(ctx, gt, false))
	}
	var p plan
	var o outcome
	for i := range fleets {
		if f := &fleets[i]; !f.deleting {
			o.take(r.remove(ctx, gt, m, f, metav1.DeletePropagationForeground), func() {})
		}
	}
	p.lookAgain(again)
	if o.stale {
		p.lookAgain(staleRetry)
	}
	s := services{ready: condition.False(v1alpha1.ConditionServiceReady, v1alpha1.ReasonDraining, "The GameType is being deleted."), phase: gt.Status.Phase}
	setStatus(now, gt, fleets, &p, o, s)
	if err := r.writeStatus(ctx, now, original, gt, m, &p); err != nil {
		return reconcile.Result{}, errors.Join(o.failure(gt), err)
	}
	return reconcile.Result{RequeueAfter: p.again}, o.failure(gt)
}

// setFinalizer puts the finalizer on, or takes it off.
func (r *Reconciler) setFinalizer(ctx context.Context, gt *v1alpha1.GameType, on bool) error {
	before := gt.DeepCopy()
	change := controllerutil.RemoveFinalizer
	if on {
		change = controllerutil.AddFinalizer
	}
	if !change(gt, v1alpha1.GameTypeFinalizer) {
		return nil
	}
	if err := r.Client.Patch(ctx, gt, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("set the finalizer of GameType %s: %w", client.ObjectKeyFromObject(gt), err)
	}
	return nil
}

// tellSelector writes how the Pods are found before there is an ElasticService,
// whose controller asks for that at once.
func (r *Reconciler) tellSelector(ctx context.Context, gt *v1alpha1.GameType) error {
	if gt.Status.Selector != "" {
		return nil
	}
	original := gt.DeepCopy()
	gt.Status.Selector = selector(gt)
	_, err := patch.Status(ctx, r.Client, original, gt)
	return err
}

// owned are the Fleets that the GameType owns, as the cache has them.
func (r *Reconciler) owned(ctx context.Context, gt *v1alpha1.GameType) ([]v1alpha1.Fleet, error) {
	var list v1alpha1.FleetList
	// They are only read.
	err := r.Client.List(ctx, &list, client.InNamespace(gt.Namespace), client.MatchingFields{IndexOwner: string(gt.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the Fleets of GameType %s: %w", client.ObjectKeyFromObject(gt), err)
	}
	return list.Items, nil
}

// observe reads the Fleets as they were written since the cache had them, and says when
// to look again; 0 for never.
func (m *memory) observe(now time.Time, gt *v1alpha1.GameType, list []v1alpha1.Fleet) ([]fleet, time.Duration) {
	fleets := make([]fleet, len(list))
	for i := range list {
		fleets[i] = observe(gt, &list[i])
	}
	return m.writes.over(now, fleets, func(t v1alpha1.ServerTemplate, of sentTemplate) bool { return isCurrent(gt, t, of) })
}

// writeStatus writes what changed and tells of it. What changes all the time, the
// players, waits a little, so that one write tells of many.
func (r *Reconciler) writeStatus(ctx context.Context, now time.Time, original, gt *v1alpha1.GameType, m *memory, p *plan) error {
	if wait := m.statusWritten.Add(countsPause).Sub(now); wait > 0 && onlyPlayersDiffer(&original.Status, &gt.Status) {
		p.lookAgain(wait)
		return nil
	}
	written, err := patch.Status(ctx, r.Client, original, gt)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if written {
		m.statusWritten = now
		emit(r.Events, gt, transitionEvents(&original.Status, &gt.Status))
	}
	return nil
}

// failure is what the controller tries again because of.
func (o outcome) failure(gt *v1alpha1.GameType) error {
	if o.failed == nil {
		return nil
	}
	return fmt.Errorf("bring GameType %s to where it should be: %w", client.ObjectKeyFromObject(gt), o.failed)
}
