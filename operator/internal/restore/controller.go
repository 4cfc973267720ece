package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/refusal"
)

const finalizer = wellknown.RestoreFinalizer

// +kubebuilder:rbac:groups=dormouse.dev,resources=restores,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=restores/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=restores/finalizers,verbs=update
// +kubebuilder:rbac:groups=dormouse.dev,resources=backups,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=snapshot.storage.k8s.io,resources=volumesnapshots,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;create;patch;delete

// Disks is the table of who has which Server's disks; disklock.Table is one.
type Disks interface {
	// Hold takes a Server's disks; false: somebody else has them.
	Hold(server types.NamespacedName, holder string) bool
	// Wanted reports whether a game was kept from starting since.
	Wanted(server types.NamespacedName) bool
	// WaitForFiles notes that a copy waits for nothing but Pods that serve the Server's files.
	WaitForFiles(server types.NamespacedName, now time.Time) (closed bool)
	// Release lets them go, if holder has them.
	Release(server types.NamespacedName, holder string)
}

// Copies knows from the cluster who copies a Server's disks.
type Copies interface {
	// Of are phrases such as "Backup survival-1".
	Of(ctx context.Context, server types.NamespacedName) (holders []string, err error)
}

// Reconciler puts Backups back, as Restores ask for it.
type Reconciler struct {
	Cluster
	// Events takes the events for users.
	Events events.EventRecorder
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	Disks    Disks
	Copies   Copies
	// Now is the clock.
	Now func() time.Time

	mu sync.Mutex
	// held are the Servers whose disks Restores have.
	held map[types.NamespacedName]types.NamespacedName
	// tried is when what was there before could last not be deleted.
	tried map[types.UID]time.Time
	// repeated are the Restores that have their second Job.
	repeated map[types.UID]bool
	// pauses are those whose last Job left the disks half moved.
	pauses map[types.UID]between
	// again brings Restores whose Server is wanted.
	again chan types.NamespacedName
}

// between is what is remembered of a Restore that is between two Jobs. All of it can be lost.
type between struct {
	// job is the last one that left the disks half moved, failures counts those, and next is when
	// another one may follow.
	job      types.UID
	failures int
	next     time.Time
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	r.held, r.tried = map[types.NamespacedName]types.NamespacedName{}, map[types.UID]time.Time{}
	r.repeated, r.pauses = map[types.UID]bool{}, map[types.UID]between{}
	r.again = make(chan types.NamespacedName, 1024)
	if r.Now == nil {
		r.Now = time.Now
	}
}

func holderOf(name string) string { return "Restore " + name }

func serverOf(rst *v1alpha1.Restore) types.NamespacedName {
	return types.NamespacedName{Namespace: rst.Namespace, Name: rst.Spec.Server}
}

// Reconcile brings one Restore further.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	original := &v1alpha1.Restore{}
	found, err := kit.Read(ctx, r.Client, req, original, func(types.NamespacedName) {})
	if err != nil {
		return reconcile.Result{}, kit.Wrapf(err, "read Restore %s", req)
	}
	if !found {
		after, err := r.gone(ctx, req.NamespacedName)
		return reconcile.Result{RequeueAfter: after}, err
	}
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	rst := original.DeepCopy()
	o, err := r.observe(ctx, rst)
	if err != nil {
		return reconcile.Result{}, err
	}
	a := next(rst, o)
	if a.step == hold {
		if !r.hold(rst) {
			return r.denied(ctx, original, rst, o)
		}
		if err := r.look(ctx, rst, &o); err != nil {
			return reconcile.Result{}, err
		}
		a = next(rst, o)
	}
	after, err := r.apply(ctx, original, rst, o, a)
	if lack := lackOf(err); lack != "" {
		return r.lacking(ctx, original, rst, lack)
	}
	return reconcile.Result{RequeueAfter: after}, err
}

// observe reads what is known from the cache and, where the Restore has the disks, from the API
// server.
func (r *Reconciler) observe(ctx context.Context, rst *v1alpha1.Restore) (o observed, err error) {
	b := &v1alpha1.Backup{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: rst.Namespace, Name: rst.Spec.Backup}, b)
	if client.IgnoreNotFound(err) != nil {
		return o, fmt.Errorf("read Backup %s/%s: %w", rst.Namespace, rst.Spec.Backup, err)
	}
	of := rst.Status.Disks
	if err == nil && b.DeletionTimestamp.IsZero() {
		o.backup = b
		if len(of) == 0 {
			of = b.Status.Disks
		}
	}
	set, s, err := find(ctx, r.Client, serverOf(rst))
	if err != nil {
		return o, err
	}
	if set != nil {
		o.set = only(set, of)
	}
	if o.set, err = r.withLeft(ctx, rst, o.set); err != nil {
		return o, err
	}
	if s != nil {
		o.runs = s.DeletionTimestamp.IsZero() && s.Spec.Runs()
		if c := meta.FindStatusCondition(s.Status.Conditions, conditions.Ready); c != nil && c.Status == metav1.ConditionTrue {
			o.readySince = &c.LastTransitionTime
		}
	}
	pod := &corev1.Pod{}
	err = r.Client.Get(ctx, serverOf(rst), pod)
	if client.IgnoreNotFound(err) != nil {
		return o, fmt.Errorf("read Pod %s: %w", serverOf(rst), err)
	}
	o.game = err == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
	if err := r.observeJob(ctx, rst, &o); err != nil {
		return o, err
	}
	r.mu.Lock()
	_, o.held = r.held[client.ObjectKeyFromObject(rst)]
	o.repeated = r.repeated[rst.UID]
	if o.job != nil && o.outcome.Failed && (o.outcome.Report.Between || o.settles) {
		o.paused = r.pausedAfter(rst.UID, o.job.UID)
	}
	if tried, ok := r.tried[rst.UID]; ok {
		o.triedAgo = max(r.Now().Sub(tried), 1)
	}
	r.mu.Unlock()
	if o.held {
		err = r.look(ctx, rst, &o)
	} else {
		err = nil // of what isn't there
	}
	return o, err
}

// pausedAfter is how long it is until another Job may follow one that left the disks half moved. It is
// called with the lock.
func (r *Reconciler) pausedAfter(restore, job types.UID) time.Duration {
	is := r.pauses[restore]
	if is.job != job {
		is = between{job: job, failures: is.failures + 1, next: r.Now().Add(pauseOf(is.failures + 1))}
		r.pauses[restore] = is
	}
	return max(is.next.Sub(r.Now()), 0)
}

// observeJob reads the Job of the Restore's phase.
func (r *Reconciler) observeJob(ctx context.Context, rst *v1alpha1.Restore, o *observed) error {
	if rst.Status.Phase != v1alpha1.CopyRunning && (rst.Status.Phase != v1alpha1.CopyComplete || !rst.Status.PreviousKept) {
		return nil
	}
	names := []string{jobName(rst)}
	if rst.Status.Phase == v1alpha1.CopyRunning {
		names = append(names, copyjob.Name(settles, rst.Name))
	}
	for i, name := range names {
		job := &batchv1.Job{}
		key := client.ObjectKey{Namespace: rst.Namespace, Name: name}
		err := r.Client.Get(ctx, key, job)
		if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(job, rst) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read Job %s: %w", key, err)
		}
		o.job, o.settles = job, i > 0
		o.outcome, err = copyjob.Read(ctx, r.Live, job)
		return err
	}
	return nil
}

// jobName is the Job of a Restore's phase: the one that writes the disks, or the one that deletes what
// was there before.
func jobName(rst *v1alpha1.Restore) string {
	if rst.Status.Phase == v1alpha1.CopyComplete {
		return copyjob.Name(drops, rst.Name)
	}
	return copyjob.Name(writes, rst.Name)
}

// What the names of a Restore's Jobs begin with: of the one that writes, of the one that brings the disks
// out of between when it is given up, and of the one that deletes what was there before.
const writes, settles, drops = "restore-", "settle-", "restored-"

// own tells the Pods of a Restore's Jobs.
func own(name string) func(*corev1.Pod) bool {
	all := []func(*corev1.Pod) bool{
		disks.OfJob(copyjob.Name(writes, name)), disks.OfJob(copyjob.Name(settles, name)), disks.OfJob(copyjob.Name(drops, name)),
	}
	return func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(all, func(is func(*corev1.Pod) bool) bool { return is(pod) })
	}
}

// look looks at the API server itself who has the disks.
func (r *Reconciler) look(ctx context.Context, rst *v1alpha1.Restore, o *observed) (err error) {
	o.held, o.wanted = true, r.Disks.Wanted(serverOf(rst))
	o.users, err = disks.UsersOf(ctx, r.Live, serverOf(rst), own(rst.Name))
	if err != nil {
		return err //nolint:wrapcheck // it says whose disks
	}
	others, err := r.Copies.Of(ctx, serverOf(rst))
	for _, holder := range others {
		if holder != holderOf(rst.Name) {
			o.others = append(o.others, holder)
		}
	}
	return kit.Wrapf(err, "look who copies the disks of Server %s", serverOf(rst))
}

func (r *Reconciler) hold(rst *v1alpha1.Restore) bool {
	if !r.Disks.Hold(serverOf(rst), holderOf(rst.Name)) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[client.ObjectKeyFromObject(rst)] = serverOf(rst)
	return true
}

// release lets the disks go that a Restore has.
func (r *Reconciler) release(key types.NamespacedName) {
	r.mu.Lock()
	server, ok := r.held[key]
	delete(r.held, key)
	r.mu.Unlock()
	if ok {
		r.Disks.Release(server, holderOf(key.Name))
	}
}

// gone lets the disks go that a Restore has which isn't there any more, once its Jobs and their Pods
// are gone, too: somebody may have taken its finalizer away.
func (r *Reconciler) gone(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	r.mu.Lock()
	server, ok := r.held[key]
	r.mu.Unlock()
	if !ok {
		return 0, nil
	}
	for _, name := range []string{copyjob.Name(writes, key.Name), copyjob.Name(settles, key.Name), copyjob.Name(drops, key.Name)} {
		job := &batchv1.Job{}
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, job)
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("read Job %s/%s: %w", key.Namespace, name, err)
		}
		if by := metav1.GetControllerOfNoCopy(job); err != nil || by == nil || by.Kind != "Restore" || by.Name != key.Name {
			job = nil
		}
		if still, err := r.ending(ctx, server, name, job); still || err != nil {
			return podRetry, err
		}
	}
	r.release(key)
	return 0, nil
}

// ending deletes a Job, and reports whether it, or a Pod of it, may write still.
func (r *Reconciler) ending(ctx context.Context, server types.NamespacedName, name string, job *batchv1.Job) (bool, error) {
	if err := r.end(ctx, job); err != nil {
		return false, err
	}
	if job != nil && !copyjob.Ended(job) {
		return true, nil
	}
	u, err := disks.UsersOf(ctx, r.Live, server, disks.OfJob(name))
	return len(u.Own) > 0, err //nolint:wrapcheck // it says whose disks
}

// denied is for a Restore that can't take the disks now.
func (r *Reconciler) denied(ctx context.Context, original, rst *v1alpha1.Restore, o observed) (reconcile.Result, error) {
	switch rst.Status.Phase {
	case v1alpha1.CopyRunning:
	case v1alpha1.CopyComplete:
		return reconcile.Result{RequeueAfter: otherRetry}, r.end(ctx, o.job)
	default:
		err := r.say(ctx, original, rst, v1alpha1.CopyPending, reasons.DisksInUse, "Waits until the disks are free: the game starts, or something else copies them.")
		return reconcile.Result{RequeueAfter: podRetry}, err
	}
	return reconcile.Result{RequeueAfter: podRetry}, nil
}

// lacking is for a Restore that waits for what somebody has to bring about.
func (r *Reconciler) lacking(ctx context.Context, original, rst *v1alpha1.Restore, lack string) (reconcile.Result, error) {
	if rst.Status.Phase != v1alpha1.CopyRunning && rst.Status.Phase != v1alpha1.CopyComplete {
		r.release(client.ObjectKeyFromObject(rst))
		return reconcile.Result{RequeueAfter: otherRetry}, r.say(ctx, original, rst, v1alpha1.CopyPending, reasons.Pending, lack)
	}
	if rst.Status.Phase == v1alpha1.CopyRunning {
		return reconcile.Result{RequeueAfter: otherRetry}, r.say(ctx, original, rst, v1alpha1.CopyRunning, reasons.Restoring,
			lack+" It goes on once that is mended: an earlier try may have left the disks half moved.")
	}
	r.release(client.ObjectKeyFromObject(rst))
	return reconcile.Result{RequeueAfter: dropRetry}, nil
}

// say writes the phase and why, and tells the phase's end.
func (r *Reconciler) say(ctx context.Context, original, rst *v1alpha1.Restore, phase v1alpha1.CopyPhase, reason, message string) error {
	now := metav1.NewTime(r.Now())
	rst.Status.ObservedGeneration, rst.Status.Phase = rst.Generation, phase
	c := condition.False(conditions.Complete, reason, "%s", message)
	if phase == v1alpha1.CopyComplete {
		c = condition.True(conditions.Complete, reason, "%s", message)
	}
	over := phase == v1alpha1.CopyComplete || phase == v1alpha1.CopyFailed
	if over {
		rst.Status.Pod = nil
	}
	if over && rst.Status.CompletionTime == nil {
		rst.Status.CompletionTime = &now
	}
	condition.SetAll(&rst.Status.Conditions, rst.Generation, now, c)
	wrote, err := patch.Status(ctx, r.Client, original, rst)
	switch {
	case err != nil || !wrote || original.Status.Phase == phase:
	case phase == v1alpha1.CopyComplete:
		kit.Emit(r.Events, rst, kit.Normal("Restored", "Restore", "%s", message))
	case phase == v1alpha1.CopyFailed:
		kit.Emit(r.Events, rst, kit.Warning("RestoreFailed", "Restore", "%s", message))
	}
	return kit.Wrapf(err, "write what became of Restore %s", client.ObjectKeyFromObject(rst))
}

// keep makes the disks that aren't there.
func (r *Reconciler) keep(ctx context.Context, set *disks.Set) error {
	err := disks.Keep(ctx, r.Live, r.Client, set)
	others := (*disks.OthersError)(nil)
	switch {
	case errors.As(err, &others):
		return lacks("%s", others.Error())
	case refusal.Is(err):
		return lacks("The API server refuses a disk: %s", refusal.Words(err))
	}
	for i := range set.Spec.Storage {
		if err != nil {
			break
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: set.Namespace, Name: disks.ClaimName(set.Name, set.Spec.Storage[i].Name)}
		if err = r.Live.Get(ctx, key, claim); err == nil && !claim.DeletionTimestamp.IsZero() {
			return lacks("Waits until PersistentVolumeClaim %s, which is being deleted, is gone; then it is made anew.", key.Name)
		}
	}
	return err //nolint:wrapcheck // it says which
}
