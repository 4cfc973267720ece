package restore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/text"
)

// After failures a disk is filled again after the first of these, and then after twice as long each
// time, up to the last.
const firstRefill, lastRefill = 10 * time.Second, 10 * time.Minute

// lackRetry is after how long it is looked again whether what a disk begins with is there, and at
// rest: nobody tells.
const lackRetry = 5 * time.Second

// Filler fills the new disks of Servers that wait for that, one disk after the other.
type Filler struct {
	Cluster
	// Events takes the events for users.
	Events events.EventRecorder
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	Disks    Disks
	Copies   Copies
	// Changed is called with a Server whose disk was filled, or can't be for another reason.
	Changed func(server types.NamespacedName)
	// Now is the clock.
	Now func() time.Time

	mu    sync.Mutex
	fills map[types.NamespacedName]*fill
}

// fill is what is remembered of a Server's disks that are filled. All of it can be lost.
type fill struct {
	// held are the Servers whose disks are taken, with the words for who has them.
	held map[types.NamespacedName]string
	// why is what was last in the way.
	why string
	// failures counts those in a row, and next is when it is tried again.
	failures int
	next     time.Time
}

// Why says why a Server's disk can't be filled now; empty: nothing is in the way.
func (f *Filler) Why(server types.NamespacedName) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if is := f.fills[server]; is != nil {
		return is.why
	}
	return ""
}

func (f *Filler) of(server types.NamespacedName) *fill {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fills == nil {
		f.fills = map[types.NamespacedName]*fill{}
	}
	if f.fills[server] == nil {
		f.fills[server] = &fill{held: map[types.NamespacedName]string{}}
	}
	return f.fills[server]
}

// Reconcile brings the filling of a Server's disks further.
func (f *Filler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	key := req.NamespacedName
	set, s, err := find(ctx, f.Client, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	disk, err := f.unfilled(ctx, set)
	if err != nil {
		return reconcile.Result{}, err
	}
	if disk == nil {
		return f.done(ctx, key)
	}
	is := f.of(key)
	one := only(set, []string{disk.Name})
	name := fillName(one, disk)
	left, err := f.endOthers(ctx, key, name, one.Owner.UID)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left != "" {
		f.say(s, key, is, left+", which began to fill the disks, is about to end.")
		return reconcile.Result{RequeueAfter: podRetry}, nil
	}
	job, err := f.job(ctx, key.Namespace, name, one.Owner.UID)
	if err == nil && job == nil {
		f.free(is) // another source's, too: no Job has them any more
	}
	if err != nil {
		return f.cant(s, key, is, job, err)
	}
	if job == nil && f.Now().Before(is.next) {
		return reconcile.Result{RequeueAfter: is.next.Sub(f.Now())}, nil
	}
	options := copyjob.Options{Name: name, Set: one, Owner: one.Owner, Labels: map[string]string{wellknown.DisksLabel: key.Name}}
	from, err := f.prepare(ctx, key, is, disk, &options, job)
	if err != nil {
		return f.cant(s, key, is, job, err)
	}
	if job == nil {
		if err := f.start(ctx, options); err != nil {
			return f.cant(s, key, is, job, err)
		}
		f.say(s, key, is, "")
		return reconcile.Result{RequeueAfter: otherRetry}, nil
	}
	return f.watch(ctx, s, key, is, one, job, from)
}

// unfilled is the first disk of a Server that doesn't have yet what it begins with; nil: there is none.
func (f *Filler) unfilled(ctx context.Context, set *disks.Set) (*v1alpha1.StorageSpec, error) {
	if set == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	for i := range set.Spec.Storage {
		disk := &set.Spec.Storage[i]
		if disk.From == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: set.Namespace, Name: disks.ClaimName(set.Name, disk.Name)}
		err := f.Live.Get(ctx, key, claim)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read PersistentVolumeClaim %s: %w", key, err)
		}
		if err == nil && claim.DeletionTimestamp.IsZero() && disks.Unfilled(claim, disk) && !disks.IsOthers(claim, set.Name) {
			return disk, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// fillName is the Job that fills a disk. What it is filled from is a part of the name, so that another
// source is another Job.
// A hash tells a Server and a Backup of one name apart.
func fillName(set *disks.Set, disk *v1alpha1.StorageSpec) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{set.Name, disk.Name, disk.From.Server, disk.From.Backup}, "/")))
	return copyjob.Name(fillPrefix, disks.ClaimName(set.Name, disk.Name)+"-"+hex.EncodeToString(sum[:4]))
}

// fillPrefix begins the name of each Job that fills a disk.
const fillPrefix = "fill-"

// mostFills bounds how many Jobs that fill a Server's disks are read at once. There are one or two.
const mostFills = 100

// endOthers has the Jobs end that fill a Server's disks, but for the one that is to: what the disks
// begin with may have changed, and a Job makes another Pod long after one has failed. left is one of
// them, or of their Pods, that may write still, by the API server itself; empty: none may.
func (f *Filler) endOthers(ctx context.Context, key types.NamespacedName, name string, owner types.UID) (left string, err error) {
	var jobs batchv1.JobList
	labels := client.MatchingLabels{wellknown.DisksLabel: key.Name, copyjob.ManagedByLabel: wellknown.ManagedBy}
	if err := f.Live.List(ctx, &jobs, client.InNamespace(key.Namespace), labels, client.Limit(mostFills)); err != nil {
		return "", fmt.Errorf("list the Jobs that fill the disks of Server %s: %w", key, err)
	}
	current := false
	for i := range jobs.Items {
		job := &jobs.Items[i]
		by := metav1.GetControllerOfNoCopy(job)
		switch {
		case !fills(by, job.Name):
			continue
		case job.Name == name && by.UID == owner:
			current = true
			continue
		case !copyjob.Ended(job):
			left = "Job " + job.Name
		}
		if err := f.end(ctx, job); err != nil {
			return "", err
		}
	}
	var pods corev1.PodList
	if err := f.Live.List(ctx, &pods, client.InNamespace(key.Namespace), labels, client.Limit(mostFills)); err != nil {
		return "", fmt.Errorf("list the Pods that fill the disks of Server %s: %w", key, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		by := metav1.GetControllerOfNoCopy(pod)
		if by == nil || by.Kind != "Job" || !strings.HasPrefix(by.Name, fillPrefix) || current && by.Name == name || disks.Over(pod) {
			continue
		}
		left = cmp.Or(left, "Pod "+pod.Name)
	}
	return left, nil
}

// fills reports whether a Job with an owner fills a disk.
func fills(by *metav1.OwnerReference, name string) bool {
	return by != nil && by.Kind != "Restore" && by.Kind != "Backup" && strings.HasPrefix(name, fillPrefix)
}

// prepare takes the disks, and completes the options of a Job that fills one. from is what the
// disk's claim says then.
func (f *Filler) prepare(ctx context.Context, key types.NamespacedName, is *fill, disk *v1alpha1.StorageSpec, o *copyjob.Options, job *batchv1.Job) (from string, err error) {
	if disk.From.Server != "" {
		source := types.NamespacedName{Namespace: key.Namespace, Name: disk.From.Server}
		from = "server/" + source.Name
		if source == key {
			return "", lacks("It names the Server itself.")
		}
		if job == nil { // else what it copies is settled
			if err := f.whole(ctx, source, disk.Name); err != nil {
				return "", err
			}
		}
		if err := f.take(ctx, is, source, copies.ForServer(key.Name), o.Name, job); err != nil {
			return "", err
		}
		o.Source = map[string]string{disk.Name: disks.ClaimName(source.Name, disk.Name)}
		o.Labels[wellknown.CopiesLabel] = source.Name
		o.Args = args("restore", o.Set, o.Name, "--from=dir:"+copyjob.SourcePath)
		return from, f.take(ctx, is, key, copies.FromServer(source.Name), o.Name, job)
	}
	b := &v1alpha1.Backup{}
	err = f.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: disk.From.Backup}, b)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read Backup %s/%s: %w", key.Namespace, disk.From.Backup, err)
	}
	from = "backup/" + disk.From.Backup
	switch {
	case job != nil: // what it copies is settled
	case err != nil || !b.DeletionTimestamp.IsZero():
		return "", lacks("There is no Backup %s.", disk.From.Backup)
	case b.Status.Phase != v1alpha1.CopyComplete || b.Status.To == nil:
		return "", lacks("Backup %s isn't Complete.", b.Name)
	case !slices.Contains(b.Status.Disks, disk.Name):
		return "", lacks("Backup %s has no disk %s.", b.Name, disk.Name)
	}
	if err := f.take(ctx, is, key, "Copy from Backup "+disk.From.Backup, o.Name, job); err != nil || job != nil {
		return from, err
	}
	*o, err = f.fromBackup(ctx, *o, b, o.Name)
	return from, err
}

// whole reports what lacks of a disk that another one begins with. Nobody takes the disks for that: what fills
// it needs them.
func (f *Filler) whole(ctx context.Context, source types.NamespacedName, name string) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := f.Live.Get(ctx, client.ObjectKey{Namespace: source.Namespace, Name: disks.ClaimName(source.Name, name)}, claim)
	if apierrors.IsNotFound(err) {
		return lacks("Server %s has no disk %s.", source.Name, name)
	}
	if err != nil {
		return fmt.Errorf("read a disk of Server %s: %w", source, err)
	}
	if err := disks.Others(claim, source.Name); err != nil {
		return lacks("Server %s has no disk %s: %s", source.Name, name, err.Error())
	}
	set, _, err := find(ctx, f.Client, source)
	if err != nil {
		return err
	}
	// Where the Server is gone nobody says that the disk is to begin empty after all.
	disk := &v1alpha1.StorageSpec{From: &v1alpha1.DiskSource{}}
	if set != nil {
		if i := slices.IndexFunc(set.Spec.Storage, func(d v1alpha1.StorageSpec) bool { return d.Name == name }); i >= 0 {
			disk = &set.Spec.Storage[i]
		}
	}
	if disks.Unfilled(claim, disk) {
		return lacks("Disk %s of Server %s doesn't have yet what it begins with.", name, source.Name)
	}
	return nil
}

// take takes a Server's disks, which must be at rest unless the Job, which has them, is there.
func (f *Filler) take(ctx context.Context, is *fill, server types.NamespacedName, holder, name string, job *batchv1.Job) error {
	if !f.Disks.Hold(server, holder) {
		return lacks("The disks of Server %s are in use: the game starts, or something else copies them.", server.Name)
	}
	f.mu.Lock()
	is.held[server] = holder
	f.mu.Unlock()
	if job != nil {
		return nil
	}
	others, err := f.Copies.Of(ctx, server)
	if err != nil {
		return kit.Wrapf(err, "look who copies the disks of Server %s", server)
	}
	if i := slices.IndexFunc(others, func(other string) bool { return other != holder }); i >= 0 {
		return lacks("%s copies the disks of Server %s.", others[i], server.Name)
	}
	u, err := disks.UsersOf(ctx, f.Live, server, disks.OfJob(name))
	if err == nil {
		err = disks.MakeWay(ctx, f.Client, f.Disks, server, &u, f.Now())
	}
	if users := append(u.Others, u.Own...); err == nil && len(users) > 0 {
		return lacks("Pod %s has the disks of Server %s: stop it, or let it sleep.", users[0], server.Name)
	}
	return err //nolint:wrapcheck // it says whose disks
}

// free lets all disks go that were taken for a Server's.
func (f *Filler) free(is *fill) {
	f.mu.Lock()
	held := is.held
	is.held = map[types.NamespacedName]string{}
	f.mu.Unlock()
	for server, holder := range held {
		f.Disks.Release(server, holder)
	}
}

// watch goes by what became of a Job.
func (f *Filler) watch(ctx context.Context, s *v1alpha1.Server, key types.NamespacedName, is *fill, one *disks.Set, job *batchv1.Job, from string) (reconcile.Result, error) {
	outcome, err := copyjob.Read(ctx, f.Live, job)
	if err != nil {
		return reconcile.Result{}, err //nolint:wrapcheck // it says of which Job
	}
	u, err := disks.UsersOf(ctx, f.Live, key, disks.OfJob(job.Name))
	switch {
	case err != nil:
		return reconcile.Result{}, err //nolint:wrapcheck // it says whose disks
	case !job.DeletionTimestamp.IsZero(), outcome.Done && len(u.Own) > 0:
		return reconcile.Result{RequeueAfter: podRetry}, nil
	case !outcome.Done:
		f.say(s, key, is, outcome.Message)
		return reconcile.Result{RequeueAfter: otherRetry}, nil
	}
	if !outcome.Failed {
		if err := f.filled(ctx, one, from); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := f.end(ctx, job); err != nil {
		return reconcile.Result{}, err
	}
	if err := f.tidy(ctx, key.Namespace, job.Name, one.Owner.UID, []string{one.Spec.Storage[0].Name}); err != nil {
		return reconcile.Result{}, err
	}
	f.free(is)
	if outcome.Failed {
		is.failures++
		is.next = f.Now().Add(min(firstRefill<<min(is.failures-1, 10), lastRefill))
		f.say(s, key, is, outcome.Message)
		return reconcile.Result{RequeueAfter: is.next.Sub(f.Now())}, nil
	}
	is.failures, is.next = 0, time.Time{}
	f.say(s, key, is, "")
	f.Changed(key)
	return reconcile.Result{RequeueAfter: podRetry}, nil // there may be another disk
}

// done is for a Server of which nothing is to be filled, or that is gone.
func (f *Filler) done(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	// A Job whose owner is gone has a Pod that may still read another Server's disk.
	left, err := f.endOthers(ctx, key, "", "")
	if err != nil {
		return reconcile.Result{}, err
	}
	if left != "" {
		return reconcile.Result{RequeueAfter: podRetry}, nil
	}
	f.mu.Lock()
	is := f.fills[key]
	f.mu.Unlock()
	if is == nil {
		return reconcile.Result{}, nil
	}
	f.free(is)
	f.mu.Lock()
	delete(f.fills, key)
	f.mu.Unlock()
	f.Changed(key)
	return reconcile.Result{}, nil
}

// cant is for a disk that can't be filled now. Its Job, if it is there, keeps what it has. Where there is none, or
// the API server refuses it, the other Server's disk waits for nothing.
func (f *Filler) cant(s *v1alpha1.Server, key types.NamespacedName, is *fill, job *batchv1.Job, err error) (reconcile.Result, error) {
	lack := why(err)
	if lack == "" {
		return reconcile.Result{}, err
	}
	if job == nil {
		f.free(is)
	}
	f.say(s, key, is, lack)
	return reconcile.Result{RequeueAfter: lackRetry}, nil
}

// say notes why a disk can't be filled, and tells of it when that changes.
func (f *Filler) say(s *v1alpha1.Server, key types.NamespacedName, is *fill, why string) {
	f.mu.Lock()
	was := is.why
	is.why = why
	f.mu.Unlock()
	if was == why {
		return
	}
	if s != nil && why != "" {
		kit.Emit(f.Events, s, kit.Warning("DiskNotFilled", "FillDisk", "A new disk can't be filled: %s", text.LowerFirst(why)))
	}
	f.Changed(key)
}

// Setup registers the controller.
func (f *Filler) Setup(mgr ctrl.Manager) error {
	if f.Now == nil {
		f.Now = time.Now
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("fill").
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: kit.Limiter()}).
		Watches(&v1alpha1.Server{}, handler.EnqueueRequestsFromMapFunc(kit.Itself), builder.WithPredicates(f.waiting())).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(byFill)).
		Complete(reconcilers.Wrap(f.Reporter, "fill", "Server", f))
	return kit.Wrapf(err, "set up the controller that fills disks")
}

// waiting lets Servers through that wait for their disks, and those that are gone and did.
func (f *Filler) waiting() predicate.Predicate {
	waits := func(o client.Object) bool {
		s, ok := o.(*v1alpha1.Server)
		return ok && condition.ReasonOf(s.Status.Conditions, conditions.Ready) == reasons.DisksBusy &&
			slices.ContainsFunc(s.Spec.Storage, func(d v1alpha1.StorageSpec) bool { return d.From != nil })
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return waits(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return waits(e.ObjectOld) != waits(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return waits(e.Object) },
	}
}

// byFill finds the Server whose disk a Job fills.
func byFill(_ context.Context, o client.Object) []reconcile.Request {
	server := o.GetLabels()[wellknown.DisksLabel]
	if server == "" || !fills(metav1.GetControllerOfNoCopy(o), o.GetName()) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: server}}}
}
