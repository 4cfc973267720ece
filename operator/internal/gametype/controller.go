package gametype

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/gametype/publish"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/pending"
)

// refusedRetry is when to try again after the API server has refused something: a quota may
// have room by then. For some seconds after the CRDs were installed its admission doesn't know
// GameTypes as owners.
const refusedRetry = 15 * time.Second

// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes,verbs=list;watch;patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes/finalizers,verbs=update
// +kubebuilder:rbac:groups=dormouse.dev,resources=fleets,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=services,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler keeps what each GameType asks for.
type Reconciler struct {
	// Client reads from the cache, which has the indexes of SetupIndexes here and of packages
	// fleet and index, and writes to the API server. Its Services must have their annotations where they
	// have wellknown.GameTypeLabel.
	Client client.Client
	// Live reads from the API server; nil: no disks of its places are looked for.
	Live client.Reader
	// Events takes the events for users.
	Events events.EventRecorder
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	// Now is the clock; nil is the real one.
	Now func() time.Time

	states kit.States[state]
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	r.states = kit.States[state]{New: func() *state { return &state{writes: pending.Writes[written]{}} }}
	if r.Now == nil {
		r.Now = time.Now
	}
}

// Reconcile brings one GameType to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	gt := &v1alpha1.GameType{}
	if found, err := kit.Read(ctx, r.Client, req, gt, r.states.Forget); !found {
		return reconcile.Result{}, err
	}
	if !gt.DeletionTimestamp.IsZero() {
		return r.finish(ctx, gt)
	}
	if !controllerutil.ContainsFinalizer(gt, wellknown.GameTypeFinalizer) {
		if err := r.setFinalizer(ctx, gt, true); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	if s := gt.Spec.Scale; s == nil || s.Of == nil || *s.Of != ptr.Deref(gt.Spec.Replicas, 1) {
		if err := r.followReplicas(ctx, gt); err != nil {
			return reconcile.Result{}, err
		}
	}
	if gt.Status.Selector == "" {
		if err := r.tellSelector(ctx, gt); err != nil {
			return reconcile.Result{}, err
		}
	}
	now, m, original := r.Now(), r.states.Of(req.NamespacedName, gt.UID), gt.DeepCopy()

	// Observe.
	seen, err := r.fleets(ctx, now, gt, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	if m.lag.Lasts(now, slices.ContainsFunc(seen.fleets, func(f fleet) bool { return f.ownerGeneration > gt.Generation })) {
		// The cache is about to show a later GameType: a Fleet is as that one wants it.
		return reconcile.Result{RequeueAfter: kit.StaleRetry}, nil
	}

	// Plan.
	p := makePlan(now, &seen.acting.Spec, seen.fleets, seen.at, m.number)
	p.undone, p.undoing = seen.undone, seen.undoing

	// Servers with other ports than the old ones' come once the private Service has all of them.
	// Kubernetes would sort both kinds of Pods into slices anew, and a Pod with players be in none
	// for a moment.
	if m.ports.Lasts(now, len(seen.oldPorts) > 0 && r.lacksPorts(ctx, seen.acting, seen.oldPorts)) {
		p.postpone()
	}

	// Apply.
	o := r.apply(ctx, &seen, m, p)
	o.failed = errors.Join(o.failed, r.keepDisks(ctx, gt, &m.disks, gt.Status.ObservedGeneration == gt.Generation))
	s, err := r.keepServices(ctx, seen.acting, seen.oldPorts)
	if err != nil {
		o.failed = errors.Join(o.failed, err)
		s.ready = condition.Unknown(conditions.ServiceReady, reasons.Pending, "The Service could not be written; it is tried again.")
	}
	kit.Emit(r.Events, gt, actionEvents(p, o, s)...)

	// Write the status, unless the next pass does.
	if m.statusPutOff = !m.statusPutOff && o.failed == nil && (o.created != "" || len(o.changed) > 0); m.statusPutOff {
		return reconcile.Result{RequeueAfter: kit.ChildrenDebounce}, nil
	}
	p.requeueAfter.AtMost(seen.pendingFor)
	if o.stale || s.stale {
		p.requeueAfter.AtMost(kit.StaleRetry)
	}
	if o.refused != "" || s.refused {
		p.requeueAfter.AtMost(refusedRetry)
	}
	setStatus(now, gt, seen.fleets, &p, o, s)
	if err := r.writeStatus(ctx, now, original, gt, m, &p); err != nil {
		return reconcile.Result{}, errors.Join(o.failure(gt), err)
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter.Duration()}, o.failure(gt)
}

// finish lets a deleted GameType go once its Servers are gone. Each of its Fleets is deleted
// and stays until its last Server is gone. The Service and the ElasticService, through which
// players still reach the Servers, go with the GameType.
func (r *Reconciler) finish(ctx context.Context, gt *v1alpha1.GameType) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(gt, wellknown.GameTypeFinalizer) {
		return reconcile.Result{}, nil
	}
	now, m, original := r.Now(), r.states.Of(client.ObjectKeyFromObject(gt), gt.UID), gt.DeepCopy()
	seen, err := r.fleets(ctx, now, gt, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	// A deletion that orphans the dependents needs no wait.
	if len(seen.fleets) == 0 || slices.Contains(gt.Finalizers, metav1.FinalizerOrphanDependents) {
		// Once more: an operator of an earlier version may have led when it was changed.
		if err := r.keepDisks(ctx, gt, &disks.Retention{}, false); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, client.IgnoreNotFound(r.setFinalizer(ctx, gt, false))
	}
	var p plan
	var o outcome
	for i := range seen.fleets {
		if f := &seen.fleets[i]; !f.deleting {
			o.take(r.remove(ctx, gt, m, f, metav1.DeletePropagationForeground), func() {})
		}
	}
	p.requeueAfter.AtMost(seen.pendingFor)
	if o.stale {
		p.requeueAfter.AtMost(kit.StaleRetry)
	}
	s := services{ready: condition.False(conditions.ServiceReady, reasons.Draining, "The GameType is being deleted."), phase: gt.Status.Phase}
	setStatus(now, gt, seen.fleets, &p, o, s)
	if err := r.writeStatus(ctx, now, original, gt, m, &p); err != nil {
		return reconcile.Result{}, errors.Join(o.failure(gt), err)
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter.Duration()}, o.failure(gt)
}

// keepDisks lets disks outlive a GameType that says so since a moment ago.
func (r *Reconciler) keepDisks(ctx context.Context, gt *v1alpha1.GameType, m *disks.Retention, observed bool) error {
	if r.Live == nil {
		return nil
	}
	of := client.MatchingLabels{wellknown.GameTypeLabel: gt.Name}
	return m.Keep(ctx, r.Live, r.Client, gt, of, gt.Spec.Template.Spec.Storage, observed) //nolint:wrapcheck // it says whose
}

// setFinalizer adds or removes the finalizer.
func (r *Reconciler) setFinalizer(ctx context.Context, gt *v1alpha1.GameType, on bool) error {
	change := kit.RemoveFinalizer
	if on {
		change = kit.AddFinalizer
	}
	if err := change(ctx, r.Client, gt, wellknown.GameTypeFinalizer); err != nil {
		return fmt.Errorf("set the finalizer of GameType %s: %w", client.ObjectKeyFromObject(gt), err)
	}
	return nil
}

// tellSelector writes the Pods' selector before there is an ElasticService, whose controller
// needs it at once.
func (r *Reconciler) tellSelector(ctx context.Context, gt *v1alpha1.GameType) error {
	original := gt.DeepCopy()
	gt.Status.Selector = selector(gt)
	_, err := patch.Status(ctx, r.Client, original, gt)
	return err
}

// fleets reads the Fleets that the GameType owns from the cache, with the pending writes that
// it doesn't show.
func (r *Reconciler) fleets(ctx context.Context, now time.Time, gt *v1alpha1.GameType, m *state) (observed, error) {
	if u := gt.Status.UpdateRevision; u != nil {
		m.number = max(m.number, u.Number)
	}
	o := observed{acting: gt}
	var list v1alpha1.FleetList
	// They are only read.
	err := r.Client.List(ctx, &list, client.InNamespace(gt.Namespace), client.MatchingFields{IndexOwner: string(gt.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return o, fmt.Errorf("list the Fleets of GameType %s: %w", client.ObjectKeyFromObject(gt), err)
	}
	undoes := gt.Annotations[wellknown.UndoToAnnotation] != "" && gt.DeletionTimestamp.IsZero()
	if undoes {
		o.acting, o.undone = undone(gt, list.Items)
	}
	o.template = desiredTemplate(o.acting)
	o.fleets = make([]fleet, len(list.Items))
	for i := range list.Items {
		f := observe(o.acting, &o.template, &list.Items[i])
		if o.fleets[i] = f; !f.current && mayHaveServers(&list.Items[i]) {
			o.oldPorts = append(o.oldPorts, publish.OldPorts(&list.Items[i].Spec.Template.Spec)...)
		}
	}
	if len(m.writes) > 0 {
		isCurrent := func(t v1alpha1.ServerTemplate, of sentTemplate) bool { return isCurrent(&o.template, t, of) }
		o.fleets, o.pendingFor = overlay(isCurrent).Over(m.writes, now, o.fleets)
	}
	if undoes {
		o.undoing = undoing(gt, o.fleets, o.undone)
	}
	if len(o.acting.Spec.Template.Spec.Storage) > 0 {
		o.at, err = observeOccupants(ctx, r.Client, o.acting, o.fleets)
	}
	return o, err
}

// writeStatus writes what changed and emits the events. The players change all the time and
// wait a little, so that one write covers many changes.
func (r *Reconciler) writeStatus(ctx context.Context, now time.Time, original, gt *v1alpha1.GameType, m *state, p *plan) error {
	written, wait, err := m.status.Write(ctx, r.Client, now, original, gt, onlyStarts(&original.Status, &gt.Status), func() bool { return onlyPlayersDiffer(&original.Status, &gt.Status) })
	p.requeueAfter.AtMost(wait)
	if written {
		kit.Emit(r.Events, gt, transitionEvents(&original.Status, &gt.Status)...)
	}
	return err
}

// failure is the error with which the controller tries again.
func (o outcome) failure(gt *v1alpha1.GameType) error {
	if o.failed == nil {
		return nil
	}
	return fmt.Errorf("bring GameType %s to where it should be: %w", client.ObjectKeyFromObject(gt), o.failed)
}
