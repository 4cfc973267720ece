package backup

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/times"
)

// mostForgotten bounds how many of a Server's Backups are deleted at once: each needs a Job.
const mostForgotten = 4

// Planner makes the Backups of Servers with spec.backup, and deletes those that don't stay. Its
// requests name Servers, which may not exist now.
type Planner struct {
	// Client reads from the cache, which has the indexes of SetupIndexes, and writes to the API
	// server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events takes the events for users.
	Events events.EventRecorder
	// Metrics tells of the last copies; nil: nothing does.
	Metrics *metrics.Backups
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	// Now is the clock; nil is the real one.
	Now func() time.Time

	states kit.States[planned]
}

// planned is what is remembered of a Server between passes.
type planned struct {
	// made is the Backup that was last made, and madeAt when: the cache may not show it yet.
	made   string
	madeAt time.Time
	// emitted is the problem that the last event was about.
	emitted string
	// noted is set once the disks count as used because the owner has begun to ask for copies.
	noted bool
}

// Init makes the planner ready for use; Setup calls it.
func (p *Planner) Init() {
	if p.Now == nil {
		p.Now = time.Now
	}
}

// Reconcile makes the Backup of one Server that is due, and deletes those that have expired.
func (p *Planner) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	server := req.NamespacedName
	set, err := disks.Find(ctx, p.Client, server)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("find the disks of Server %s: %w", server, err)
	}
	owner := ownerObject(ctx, p.Client, set)
	if owner == nil || !owner.GetDeletionTimestamp().IsZero() || set.Backup == nil {
		p.states.Forget(server)
		p.Metrics.Forget(server.Namespace, server.Name)
		if owner != nil && set.Backup == nil && hasCondition(owner) {
			return reconcile.Result{}, p.tellOwner(ctx, owner, nil)
		}
		return reconcile.Result{}, nil
	}
	backups, err := backupsOf(ctx, p.Client, server)
	if err != nil {
		return reconcile.Result{}, err
	}
	p.measure(server, backups)
	if err := p.expire(ctx, set, backups); err != nil {
		return reconcile.Result{}, err
	}
	m := p.states.Of(server, owner.GetUID())
	if lag := m.lag(p.Now(), backups); lag > 0 {
		return reconcile.Result{RequeueAfter: lag}, nil
	}
	if err := p.noteUse(ctx, set, owner, m); err != nil {
		return reconcile.Result{}, err
	}
	n, err := p.need(ctx, set, owner, backups)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := due(p.Now(), n)
	p.tell(owner, m, d.problem)
	if d.name != "" {
		err = p.make(ctx, set, owner, m, &d)
	}
	if err == nil {
		err = p.tellOwner(ctx, owner, d.problem)
	}
	return reconcile.Result{RequeueAfter: d.requeueAfter.Duration()}, err
}

// lag is when to look again where the cache doesn't show the last Backup that was made.
func (m *planned) lag(now time.Time, backups []*v1alpha1.Backup) time.Duration {
	shown := slices.ContainsFunc(backups, func(b *v1alpha1.Backup) bool { return b.Name == m.made })
	if m.made == "" || shown || now.Sub(m.madeAt) >= pending.MaxLag {
		m.made = ""
		return 0
	}
	return kit.StaleRetry
}

// noteUse has the disks of an owner that begins to ask for copies count as used: what was played while it
// didn't is noted nowhere. It does so for all of its Servers, because its condition, by which that is seen, is
// theirs together, and once, though the condition may not be written. Those that have no copy need no note.
func (p *Planner) noteUse(ctx context.Context, set *disks.Set, owner client.Object, m *planned) error {
	if m.noted || hasCondition(owner) {
		return nil
	}
	at := p.Now().Add(-time.Second) // a copy that begins now is of a later time
	for _, name := range serverNames(owner) {
		earlier, err := backupsOf(ctx, p.Client, types.NamespacedName{Namespace: set.Namespace, Name: name}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		if !began(earlier, time.Time{}, false) {
			continue
		}
		if err := disks.MarkUsed(ctx, p.Live, p.Client, set.Namespace, name, set.Spec.Storage, at); err != nil {
			return err //nolint:wrapcheck // it says of which disk
		}
	}
	m.noted = true
	return nil
}

// need observes what due needs. The disks are only looked at where no copy is under way.
func (p *Planner) need(ctx context.Context, set *disks.Set, owner client.Object, backups []*v1alpha1.Backup) (need, error) {
	n := need{server: set.Name, spec: set.Backup, since: owner.GetCreationTimestamp().Time, backups: backups}
	if gt, ok := owner.(*v1alpha1.GameType); ok && !slices.Contains(places(gt), set.Name) {
		// The place is there only while an autoscaler wants more: it has no copies at times.
		n.spec = n.spec.DeepCopy()
		n.spec.Schedule = nil
	}
	if underWay(backups) {
		return n, nil
	}
	var err error
	if n.restoring, err = restoring(ctx, p.Client, set.Key()); err != nil {
		return n, err
	}
	if n.awake, err = gameRuns(ctx, p.Client, set.Key()); err != nil {
		return n, err
	}
	n.usedAt, err = p.usedAt(ctx, set)
	return n, err
}

// usedAt is when a Pod that may write to a Server's disks was last made, or else when they were; zero,
// while one isn't there, is another Server's, or doesn't have what it begins with.
func (p *Planner) usedAt(ctx context.Context, set *disks.Set) (time.Time, error) {
	var last time.Time
	for i := range set.Spec.Storage {
		disk, claim := &set.Spec.Storage[i], &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: set.Namespace, Name: disks.ClaimName(set.Name, disk.Name)}
		err := p.Live.Get(ctx, key, claim)
		if apierrors.IsNotFound(err) {
			return time.Time{}, nil
		}
		if err != nil {
			return time.Time{}, fmt.Errorf("read PersistentVolumeClaim %s: %w", key, err)
		}
		if disks.Unfilled(claim, disk) || disks.IsOthers(claim, set.Name) {
			return time.Time{}, nil
		}
		used, err := time.Parse(time.RFC3339, claim.Annotations[wellknown.UsedAtAnnotation])
		if err != nil {
			used = claim.CreationTimestamp.Time
		}
		last = times.Latest(last, used)
	}
	return last, nil
}

// make makes a Backup.
func (p *Planner) make(ctx context.Context, set *disks.Set, owner client.Object, m *planned, d *decision) error {
	b := &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: d.name,
			Labels: map[string]string{
				copyjob.ManagedByLabel: wellknown.ManagedBy, wellknown.ServerLabel: set.Name, wellknown.BackupCauseLabel: d.cause,
			},
		},
		Spec: v1alpha1.BackupRequest{Server: set.Name},
	}
	err := p.Client.Create(ctx, b)
	switch {
	case apierrors.IsAlreadyExists(err):
		d.requeueAfter.AtMost(time.Second) // the next one has another name
		return nil
	case refusal.Is(err):
		p.tell(owner, m, fmt.Errorf("the API server refuses Backup %s: %s", d.name, refusal.Words(err)))
		d.requeueAfter = requeue.After(userRetry)
		return nil
	case err != nil:
		return fmt.Errorf("create Backup %s/%s: %w", b.Namespace, b.Name, err)
	}
	m.made, m.madeAt = d.name, p.Now()
	return nil
}

// tell says once what keeps copies from being made.
func (p *Planner) tell(owner client.Object, m *planned, problem error) {
	words := ""
	if problem != nil {
		words = problem.Error()
	}
	if words != "" && words != m.emitted {
		kit.Emit(p.Events, owner, kit.Warning("BackupNotMade", "Backup", "No copies are made: %s", words))
	}
	m.emitted = words
}

// expire deletes Backups that don't stay, a few at a time.
func (p *Planner) expire(ctx context.Context, set *disks.Set, backups []*v1alpha1.Backup) error {
	going := 0
	for _, b := range backups {
		if !b.DeletionTimestamp.IsZero() {
			going++
		}
	}
	gone, err := p.expiredOf(ctx, set, backups)
	if err != nil || len(gone) == 0 {
		return err
	}
	named, err := namedBackups(ctx, p.Client, set.Namespace, gone)
	if err != nil {
		return err
	}
	for _, b := range gone {
		if named[b.Name] {
			continue
		}
		if going++; going > mostForgotten {
			return nil // the next ones when these are gone
		}
		err := p.Client.Delete(ctx, b, client.Preconditions{UID: &b.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Backup %s: %w", client.ObjectKeyFromObject(b), err)
		}
	}
	return nil
}

// expiredOf are the Backups that don't stay. Those of earlier disks count by themselves: they may be the last of a
// world that somebody has deleted by mistake, and the world after it pushes none of them out.
func (p *Planner) expiredOf(ctx context.Context, set *disks.Set, backups []*v1alpha1.Backup) ([]*v1alpha1.Backup, error) {
	keep := set.Backup.Keep
	if gone := expired(keep, backups); len(gone) == 0 {
		return nil, nil
	}
	since, err := p.disksSince(ctx, set)
	if err != nil {
		return nil, err
	}
	var earlier, now []*v1alpha1.Backup
	for _, b := range backups {
		if b.Status.Phase == v1alpha1.CopyComplete && takenAt(b).Before(since) {
			earlier = append(earlier, b)
		} else {
			now = append(now, b)
		}
	}
	return append(expired(keep, earlier), expired(keep, now)...), nil
}

// disksSince is when the oldest of a Server's disks was made; zero: it has none.
func (p *Planner) disksSince(ctx context.Context, set *disks.Set) (oldest time.Time, err error) {
	for i := range set.Spec.Storage {
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: set.Namespace, Name: disks.ClaimName(set.Name, set.Spec.Storage[i].Name)}
		err := p.Live.Get(ctx, key, claim)
		switch made := claim.CreationTimestamp.Time; {
		case client.IgnoreNotFound(err) != nil:
			return oldest, fmt.Errorf("read PersistentVolumeClaim %s: %w", key, err)
		case err == nil && !disks.IsOthers(claim, set.Name) && (oldest.IsZero() || made.Before(oldest)):
			oldest = made
		}
	}
	return oldest, nil
}

// measure tells of a Server's last copies.
func (p *Planner) measure(server types.NamespacedName, backups []*v1alpha1.Backup) {
	var success, end time.Time
	failed := false
	for _, b := range backups {
		if at := endOf(b); ended(b) && b.Status.Phase != v1alpha1.CopyCanceled && !at.Before(end) {
			end, failed = at, b.Status.Phase == v1alpha1.CopyFailed
		}
		if b.Status.Phase == v1alpha1.CopyComplete {
			success = times.Latest(success, endOf(b))
		}
	}
	p.Metrics.Last(server.Namespace, server.Name, success, failed)
}

// mostPlaces bounds the places of one GameType, as the API server does.
const mostPlaces = 100

// serverNames are the names of an owner's Servers.
func serverNames(owner client.Object) []string {
	if gt, ok := owner.(*v1alpha1.GameType); ok {
		return places(gt)
	}
	return []string{owner.GetName()}
}

// places are the names of a GameType's Servers.
func places(gt *v1alpha1.GameType) []string {
	count := ptr.Deref(gt.Spec.Replicas, 1)
	if gt.Spec.Scale != nil {
		count = max(count, gt.Spec.Scale.Replicas)
	}
	var names []string
	for place := range min(count, mostPlaces) {
		names = append(names, disks.OfPlace(gt, place).Name)
	}
	return names
}

// backupsOf are the Backups of a Server in the cache: copies, unless the options say otherwise.
func backupsOf(ctx context.Context, cached client.Reader, server types.NamespacedName, opts ...client.ListOption) ([]*v1alpha1.Backup, error) {
	var list v1alpha1.BackupList
	opts = append(opts, client.InNamespace(server.Namespace), client.MatchingFields{copies.IndexServer: server.Name})
	if err := cached.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("list the Backups of Server %s: %w", server, err)
	}
	all := make([]*v1alpha1.Backup, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}
