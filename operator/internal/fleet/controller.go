package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/patch"
)

const (
	// staleRetry is when to look again after somebody else wrote first: the cache
	// will tell what.
	staleRetry = 20 * time.Millisecond
	// endingRetry is when to look again in a namespace that is being deleted.
	endingRetry = 30 * time.Second
	// countsPause is the least time between two writes of a status in which
	// nothing but the players changed.
	countsPause = time.Second
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=fleets,verbs=list;watch
// +kubebuilder:rbac:groups=dormouse.dev,resources=fleets/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=fleets/finalizers,verbs=update
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler keeps as many Servers as each Fleet asks for.
type Reconciler struct {
	// Client reads from the cache, which has the index of SetupIndexes, and writes
	// to the API server.
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

// Reconcile brings one Fleet to where it should be.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	f := &v1alpha1.Fleet{}
	if err := r.Client.Get(ctx, req.NamespacedName, f); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.reconcile(ctx, f)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{RequeueAfter: endingRetry}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, f *v1alpha1.Fleet) (reconcile.Result, error) {
	now, m, original := r.Now(), r.memoryOf(f), f.DeepCopy()
	m.follow(f)
	objects, err := r.owned(ctx, f)
	if err != nil {
		return reconcile.Result{}, err
	}
	servers := make([]server, len(objects))
	for i := range objects {
		servers[i] = observe(&objects[i])
	}
	servers, again := m.writes.over(now, servers)
	m.markOutdated(f, servers, objects)
	if m.beginning.see(now, f, servers); m.beginning.behind(now) {
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}

	var p plan
	var o outcome
	if f.DeletionTimestamp.IsZero() {
		m.backoff.learn(now, servers)
		p = makePlan(now, &f.Spec, servers, m.backoff)
		o = r.apply(ctx, f, m, p, m.beginning.namer(now, f))
		m.learn(r.Now(), p, o)
		emit(r.Events, f, actionEvents(p, o, m.backoff))
	}
	if again > 0 {
		p.lookAgain(again)
	}
	if o.stale {
		p.lookAgain(staleRetry)
	}
	if o.refused != "" {
		p.lookAgain(m.backoff.refusedUntil.Sub(now))
	}
	if m.putOff = !m.putOff && o.failed == nil && o.wrote(); m.putOff {
		return reconcile.Result{RequeueAfter: breath}, nil
	}
	setStatus(now, f, servers, p, m.backoff)
	if err := r.writeStatus(ctx, now, original, f, m, &p); err != nil {
		return reconcile.Result{}, errors.Join(o.failure(f), err)
	}
	return reconcile.Result{RequeueAfter: p.again}, o.failure(f)
}

// owned are the Servers that the Fleet owns, as the cache has them.
func (r *Reconciler) owned(ctx context.Context, f *v1alpha1.Fleet) ([]v1alpha1.Server, error) {
	var list v1alpha1.ServerList
	// They are only read.
	err := r.Client.List(ctx, &list, client.InNamespace(f.Namespace), client.MatchingFields{IndexOwner: string(f.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the Servers of Fleet %s: %w", client.ObjectKeyFromObject(f), err)
	}
	return list.Items, nil
}

// writeStatus writes what changed. What changes all the time, the players, waits a
// little, so that one write tells of many.
func (r *Reconciler) writeStatus(ctx context.Context, now time.Time, original, f *v1alpha1.Fleet, m *memory, p *plan) error {
	if wait := m.statusWritten.Add(countsPause).Sub(now); wait > 0 && onlyPlayersDiffer(&original.Status, &f.Status) {
		p.lookAgain(wait)
		return nil
	}
	written, err := patch.Status(ctx, r.Client, original, f)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if written {
		m.statusWritten = now
	}
	return nil
}

// learn takes in what came of a pass.
func (m *memory) learn(now time.Time, p plan, o outcome) {
	m.backoff.debt = min(m.backoff.debt, p.held)
	switch {
	case o.refused != "":
		m.backoff.refused(now, o.refused)
	case len(o.created) > 0:
		m.backoff.accepted()
	}
}

// failure is what the controller tries again because of.
func (o outcome) failure(f *v1alpha1.Fleet) error {
	if o.failed == nil {
		return nil
	}
	return fmt.Errorf("bring Fleet %s to %d Servers: %w", client.ObjectKeyFromObject(f), replicas(&f.Spec), o.failed)
}
