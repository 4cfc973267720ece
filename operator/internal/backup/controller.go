package backup

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/disks/disklock"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=backups,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=dormouse.dev,resources=backups/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=backups/finalizers,verbs=update
// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes;restores;servers,verbs=list;watch
// +kubebuilder:rbac:groups=dormouse.dev,resources=gametypes/status;servers/status,verbs=patch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=snapshot.storage.k8s.io,resources=volumesnapshots,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;patch
// +kubebuilder:rbac:groups="",namespace=dormouse-system,resources=podtemplates,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Copies knows from the cluster who copies a Server's disks.
type Copies interface {
	// Of are phrases for those that do, such as "Restore undo"; none: nobody.
	Of(ctx context.Context, server types.NamespacedName) ([]string, error)
}

// Reconciler carries out Backups.
type Reconciler struct {
	// Client reads from the cache, which has the indexes of SetupIndexes, and writes to the API
	// server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Table has who holds which Server's disks.
	Table *disklock.Table
	// Copies knows of those who hold them though they aren't in the Table; nil: nobody does.
	Copies Copies
	// SidecarTemplate names the PodTemplate whose first container copies.
	SidecarTemplate types.NamespacedName
	// Events takes the events for users.
	Events events.EventRecorder
	// Metrics counts; nil: nothing is counted.
	Metrics *metrics.Backups
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	// Now is the clock; nil is the real one.
	Now func() time.Time

	states kit.States[state]

	mu sync.Mutex
	// held are the Servers whose disks Backups hold, by the Backup.
	held map[types.NamespacedName]types.NamespacedName
	// yields are until when Backups of a Server let its game go first.
	yields map[types.NamespacedName]time.Time
}

// state is what is remembered of a Backup. All of it can be lost: a Job that is gone is then made
// again, and a game that still waits asks again.
type state struct {
	// made is set once the Job is known to be there.
	made bool
	// stopping is why the copy is being given up; empty: it isn't.
	stopping string
	// refused is why the API server refuses the Job or a snapshot.
	refused string
}

// gameFirst is how long a game that was kept from starting has until the next copy may hold its disks.
const gameFirst = time.Minute

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	if r.Now == nil {
		r.Now = time.Now
	}
	r.held, r.yields = map[types.NamespacedName]types.NamespacedName{}, map[types.NamespacedName]time.Time{}
}

// Reconcile brings one Backup further.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	b := &v1alpha1.Backup{}
	found, err := kit.Read(ctx, r.Client, req, b, r.states.Forget)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !found {
		return r.letGoOf(ctx, req.NamespacedName)
	}
	if ended(b) && b.DeletionTimestamp.IsZero() {
		r.release(b)
		return reconcile.Result{}, nil
	}
	m := r.states.Of(req.NamespacedName, b.UID)
	o, err := r.observe(ctx, b, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	s := next(b, o)
	switch s.do {
	case start, startBeside:
		s, err = r.begin(ctx, b, o, m, s.do == startBeside)
	case goOn:
		s, err = r.goOn(ctx, b, o, m, s)
	case letGo:
		if err = r.setStatus(ctx, b, s); err == nil {
			r.release(b)
		}
	case giveUp:
		if err = r.stop(ctx, b); err == nil {
			m.stopping = s.reason
		}
	case finish:
		err = r.finish(ctx, b, o, s)
	case forget:
		return r.forget(ctx, b, o)
	case rest:
		if s.reason != "" {
			err = r.setStatus(ctx, b, s)
		}
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter}, client.IgnoreNotFound(err)
}

// begin takes the disks and begins to copy. What keeps it from that is in the step that it returns.
func (r *Reconciler) begin(ctx context.Context, b *v1alpha1.Backup, o observed, m *state, beside bool) (step, error) {
	if s, err := r.prepared(ctx, b, o.set); err != nil || s.reason != "" {
		return s, r.setWaiting(ctx, b, s, err)
	}
	if err := kit.AddFinalizer(ctx, r.Client, b, finalizer); err != nil {
		return step{}, kit.Wrapf(err, "add the finalizer to Backup %s", client.ObjectKeyFromObject(b))
	}
	if s, err := r.takeDisks(ctx, b, o.set, beside); err != nil || s.reason != "" {
		return s, r.setWaiting(ctx, b, s, err)
	}
	// From here on a new leader knows what is under way.
	if err := r.setRunning(ctx, b, o.set, !beside); err != nil {
		r.release(b)
		return step{}, err
	}
	return r.make(ctx, b, o, m, step{requeueAfter: runningLook})
}

// setWaiting writes why a Backup waits.
func (r *Reconciler) setWaiting(ctx context.Context, b *v1alpha1.Backup, s step, err error) error {
	if err != nil {
		return err
	}
	return r.setStatus(ctx, b, s)
}

// takeDisks holds a Server's disks and makes sure that nothing has them; beside: that it is the game
// which does, and no copy.
func (r *Reconciler) takeDisks(ctx context.Context, b *v1alpha1.Backup, set *disks.Set, beside bool) (step, error) {
	busy := func(format string) step {
		return waiting(busyRetry, reasons.DisksInUse, format)
	}
	if !beside && !r.hold(b) {
		return busy("It waits: another copy has the disks, or the game starts."), nil
	}
	if !beside {
		if other, err := r.another(ctx, b); err != nil || other != "" {
			r.release(b)
			return busy("It waits for " + other + ", which has the disks."), err
		}
	}
	u, err := r.users(ctx, set.Key(), b.Name)
	switch {
	case err != nil:
	case beside && !u.Game:
		return waiting(kit.StaleRetry, reasons.DisksInUse, "It waits until Pod "+set.Name+" of the game is gone."), nil
	case beside || len(u.Others) == 0:
		return step{}, nil
	default:
		err = disks.MakeWay(ctx, r.Client, r.Table, set.Key(), &u, r.Now())
	}
	r.release(b)
	return busy("It waits until Pod " + u.First() + " is gone, which has the disks."), err
}

// another is somebody else than a Backup who copies its Server's disks; empty: nobody does. An earlier
// leader's Restore holds nothing in the table, and between two tries of its Job it has no Pod either.
func (r *Reconciler) another(ctx context.Context, b *v1alpha1.Backup) (string, error) {
	if r.Copies == nil {
		return "", nil
	}
	all, err := r.Copies.Of(ctx, serverOf(b))
	if err != nil {
		return "", err //nolint:wrapcheck // it says whose disks
	}
	for _, other := range all {
		if other != holder(b.Name) {
			return other, nil
		}
	}
	return "", nil
}

// goOn lets a Backup copy. What a leader before this one, or this one before an error, hadn't made
// yet is made, if the disks are still at rest.
func (r *Reconciler) goOn(ctx context.Context, b *v1alpha1.Backup, o observed, m *state, s step) (step, error) {
	if disks.BackupHolds(b) {
		held := r.hold(b)
		if !o.made {
			u, err := r.users(ctx, serverOf(b), b.Name)
			if err != nil {
				return step{}, err
			}
			other, err := r.another(ctx, b)
			if err != nil {
				return step{}, err
			}
			if !held || len(u.Others) > 0 || other != "" {
				m.stopping = reasons.GameWoken
				return step{requeueAfter: kit.StaleRetry}, nil
			}
		}
	}
	if !o.made {
		return r.make(ctx, b, o, m, s)
	}
	return s, r.setStatus(ctx, b, s)
}

// finish writes how a Backup ended, and lets the disks go.
func (r *Reconciler) finish(ctx context.Context, b *v1alpha1.Backup, o observed, s step) error {
	if err := r.setEnd(ctx, b, o, s); err != nil {
		return err
	}
	r.release(b)
	r.emit(ctx, b, o.set)
	if o.set != nil && o.set.Backup != nil {
		r.Metrics.Ended(b.Namespace, b.Spec.Server, string(b.Status.Phase))
	}
	if s.phase == v1alpha1.CopyFailed {
		return r.stop(ctx, b) // snapshots that aren't whole, too
	}
	return r.deleteJob(ctx, b, backupJob(b.Name))
}

// holder is how the table knows a Backup.
func holder(name string) string { return "Backup " + name }

// hold takes the disks of a Backup's Server in the table.
func (r *Reconciler) hold(b *v1alpha1.Backup) bool {
	server := serverOf(b)
	if !r.Table.Hold(server, holder(b.Name)) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[client.ObjectKeyFromObject(b)] = server
	return true
}

// release lets the disks go that a Backup holds.
func (r *Reconciler) release(b *v1alpha1.Backup) { r.releaseKey(client.ObjectKeyFromObject(b)) }

func (r *Reconciler) releaseKey(key types.NamespacedName) {
	r.mu.Lock()
	server, ok := r.held[key]
	delete(r.held, key)
	if ok && r.Table.Wanted(server) {
		r.yields[server] = r.Now().Add(gameFirst)
	}
	r.mu.Unlock()
	if ok {
		r.Table.Release(server, holder(key.Name))
	}
}

// yieldsFor is for how long Backups of a Server let its game go first.
func (r *Reconciler) yieldsFor(server types.NamespacedName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.yields[server].Sub(r.Now())
	if left <= 0 {
		delete(r.yields, server)
	}
	return max(left, 0)
}

// gameEnded notes that a Server's game was there and is gone: it went first, where it had to.
func (r *Reconciler) gameEnded(server types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.yields, server)
}

// letGoOf lets the disks go of a Backup that is gone: somebody removed its finalizer. Its Job goes
// with it, and its Pod may still be there.
func (r *Reconciler) letGoOf(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	r.mu.Lock()
	_, ok := r.held[key]
	r.mu.Unlock()
	if !ok {
		return reconcile.Result{}, nil
	}
	left, err := r.copying(ctx, key)
	if err != nil || left {
		return reconcile.Result{RequeueAfter: goneLook}, err
	}
	r.releaseKey(key)
	return reconcile.Result{}, nil
}

// serverOf is the Server that a Backup is of.
func serverOf(b *v1alpha1.Backup) types.NamespacedName {
	return types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.Server}
}
