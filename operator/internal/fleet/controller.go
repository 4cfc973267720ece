package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/fleet/startwindow"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/pending"
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=fleets,verbs=list;watch
// +kubebuilder:rbac:groups=dormouse.dev,resources=fleets/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=fleets/finalizers,verbs=update
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler keeps as many Servers as each Fleet asks for.
type Reconciler struct {
	// Client reads from the cache, which has the index of SetupIndexes, and writes
	// to the API server.
	Client client.Client
	// Servers are those in that cache.
	Servers Servers
	// Live reads from the API server; nil: no disks of its places are looked for.
	Live client.Reader
	// Events takes the events for users.
	Events events.EventRecorder
	// Allocations knows which Servers Allocations have; nil: none does.
	Allocations Allocations
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	// Now is the clock; nil is the real one.
	Now func() time.Time

	states kit.States[state]
	window startwindow.Window
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	r.states = kit.States[state]{New: func() *state { return &state{writes: pending.Writes[server]{}, starts: times{}, going: times{}} }}
	if r.Now == nil {
		r.Now = time.Now
	}
}

// Reconcile brings one Fleet to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	if r.Allocations != nil {
		if err := r.Allocations.WaitSynced(ctx); err != nil {
			return reconcile.Result{}, fmt.Errorf("reconcile Fleet %s: %w", req, err)
		}
	}
	f := &v1alpha1.Fleet{}
	if found, err := kit.Read(ctx, r.Client, req, f, r.states.Forget); !found {
		return reconcile.Result{}, err
	}
	now, m, original := r.Now(), r.states.Of(client.ObjectKeyFromObject(f), f.UID), f.DeepCopy()
	if rest := m.pacing.Rest(now, f.Generation); rest > 0 {
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	m.follow(f)

	// Observe the Servers that the Fleet owns, as the cache has them, and the pending writes
	// that it doesn't show. The objects are only read.
	objects, err := r.Servers.Find(f.Namespace, IndexOwner, string(f.UID))
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list the Servers of Fleet %s: %w", client.ObjectKeyFromObject(f), err)
	}
	servers := make([]server, len(objects))
	for i := range objects {
		servers[i] = observe(objects[i])
	}
	var pendingFor time.Duration
	if len(m.writes) > 0 {
		servers, pendingFor = overlay.Over(m.writes, now, servers)
	}
	if len(servers) > 0 && r.Allocations != nil {
		r.observeHolders(f, servers)
	}
	if len(servers)+len(m.compared) > 0 {
		m.markOutdated(f, servers, objects)
	}
	if len(m.starts) > 0 {
		m.starts.up(now, servers)
	}
	if len(m.going) > 0 {
		m.going.gone(now, servers)
	}
	if m.first.see(now, f, servers) {
		return reconcile.Result{RequeueAfter: kit.StaleRetry}, nil
	}

	var at *standing // nil: its Servers have no places
	if len(f.Spec.Template.Spec.Storage) > 0 {
		if at, err = r.observePlaces(ctx, f, servers); err != nil {
			return reconcile.Result{}, err
		}
	}
	if at != nil && len(at.wanted) > 0 {
		r.reportLeftDisks(ctx, f, m)
	}

	// Plan and apply; not for a Fleet that is being deleted.
	var p plan
	var o outcome
	var worked time.Duration
	if f.DeletionTimestamp.IsZero() {
		m.backoff.learn(now, servers)
		if at != nil {
			p = planPlaces(now, &f.Spec, at, servers, m.backoff)
		} else {
			p = makePlan(now, &f.Spec, servers, m.backoff)
		}
		p.limit(r.window.Take(now, req.NamespacedName, m.starts, p.create))
		if len(p.remove) > 0 {
			p.limitRemovals(len(m.going))
		}
		worked = r.Now().Sub(now)
		o = r.apply(ctx, f, m, p, m.first.namer(f, p.places))
		m.learn(r.Now(), p, o)
		if len(o.created) < p.create {
			// What was refused leaves its place to other Fleets.
			r.window.Take(r.Now(), req.NamespacedName, m.starts, 0)
		}
		if o.failed == nil { // else it is tried again, later each time
			m.pacing.Took(r.Now(), f.Generation, worked)
		}
		kit.Emit(r.Events, f, actionEvents(p, o, m.backoff)...)
	}

	o.failed = errors.Join(o.failed, r.keepDisks(ctx, f, m))

	// Write the status, unless the next pass does.
	wrote := len(o.created)+len(o.takenBack)+len(o.drained)+len(o.deleted) > 0
	if m.statusPutOff = !m.statusPutOff && o.failed == nil && wrote; m.statusPutOff {
		return reconcile.Result{RequeueAfter: kit.ChildrenDebounce}, nil
	}
	p.requeueAfter.AtMost(pendingFor)
	if o.stale {
		p.requeueAfter.AtMost(kit.StaleRetry)
	}
	if o.refused != "" {
		p.requeueAfter.AtMost(m.backoff.refusedUntil.Sub(now))
	}
	setStatus(now, f, servers, p, m.backoff)
	if err := r.writeStatus(ctx, now, original, f, m, &p); err != nil {
		return reconcile.Result{}, errors.Join(o.failure(f), err)
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter.Duration()}, o.failure(f)
}

// writeStatus writes what changed. The players change all the time and wait a little, so that
// one write covers many changes.
func (r *Reconciler) writeStatus(ctx context.Context, now time.Time, original, f *v1alpha1.Fleet, m *state, p *plan) error {
	_, wait, err := m.status.Write(ctx, r.Client, now, original, f, onlyStarts(&original.Status, &f.Status), func() bool { return onlyPlayersDiffer(&original.Status, &f.Status) })
	p.requeueAfter.AtMost(wait)
	return err
}

// learn takes in the result of a pass.
func (m *state) learn(now time.Time, p plan, o outcome) {
	m.backoff.debt = min(m.backoff.debt, p.held)
	switch {
	case o.refused != "":
		m.backoff.refused(now, o.refused)
	case len(o.created) > 0:
		m.backoff.refusals, m.backoff.refusedUntil, m.backoff.refusal = 0, time.Time{}, ""
	}
	for _, name := range o.created {
		m.starts[name] = now
	}
	for _, name := range o.deleted {
		m.going[name] = now
	}
}

// failure is the error with which the controller tries again.
func (o outcome) failure(f *v1alpha1.Fleet) error {
	if o.failed == nil {
		return nil
	}
	return fmt.Errorf("bring Fleet %s to %d Servers: %w", client.ObjectKeyFromObject(f), ptr.Deref(f.Spec.Replicas, 1), o.failed)
}

// Servers finds Servers by a field that the cache has an index over. They are the cache's own and must not be
// changed. A cachestore.Store is one.
type Servers interface {
	Find(namespace, field, value string) ([]*v1alpha1.Server, error)
}

// Allocations knows which Servers Allocations have.
type Allocations interface {
	// WaitSynced waits until it knows.
	WaitSynced(ctx context.Context) error
	// HolderOf is who has a Server.
	HolderOf(namespace, name string, uid types.UID) book.Holder
	// Withdraw asks for a Server that is about to be drained or deleted, which no Allocation gets any
	// more; false: one has it.
	Withdraw(namespace, name string) bool
}
