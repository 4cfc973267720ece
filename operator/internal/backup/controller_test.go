package backup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/disks/copies"
	"dormouse.dev/dormouse/operator/internal/disks/disklock"
)

// clusterWith is an API server, or a cache with the indexes, that has objects.
func clusterWith(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	server := func(o client.Object) []string { return []string{copies.ServerOf(o).Name} }
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Backup{}).
		WithIndex(&v1alpha1.Backup{}, copies.IndexServer, server).WithIndex(&v1alpha1.Restore{}, copies.IndexServer, server).
		WithIndex(&v1alpha1.Server{}, indexFrom, fromBackups).WithIndex(&v1alpha1.GameType{}, indexFrom, fromBackups).Build()
}

func restore(phase v1alpha1.CopyPhase) *v1alpha1.Restore {
	return &v1alpha1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "undo", UID: "undo"},
		Spec:       v1alpha1.RestoreSpec{Server: "survival-0", Backup: "b"},
		Status:     v1alpha1.RestoreStatus{Phase: phase},
	}
}

// A Restore that an earlier leader began has no Pod while its Job is between two tries.
func TestACopyKeepsOffDisksThatAnEarlierLeaderRestores(t *testing.T) {
	running := made("b", 0, v1alpha1.CopyRunning)
	free := func(table *disklock.Table) bool {
		end, holder := table.Start(types.NamespacedName{Namespace: "games", Name: "survival-0"})
		if holder == "" {
			end()
		}
		return holder == ""
	}
	for name, c := range map[string]struct {
		others  []client.Object
		refused bool
	}{
		"nobody copies":           {[]client.Object{running}, false},
		"a Restore that is over":  {[]client.Object{restore(v1alpha1.CopyFailed)}, false},
		"a Restore between tries": {[]client.Object{running, restore(v1alpha1.CopyRunning)}, true},
		"another Backup":          {[]client.Object{made("other", 0, v1alpha1.CopyRunning)}, true},
	} {
		live := clusterWith(t, c.others...)
		table := disklock.New(func(types.NamespacedName) {}, func(types.NamespacedName) {})
		r := &Reconciler{Client: live, Live: live, Table: table, Copies: &copies.Finder{Client: clusterWith(t), Live: live}}
		r.Init()
		b, set := made("b", 0, v1alpha1.CopyPending), setWith(nil)
		s, err := r.takeDisks(t.Context(), b, set, false)
		if err != nil || (s.reason == reasons.DisksInUse) != c.refused || free(table) != c.refused {
			t.Errorf("%s: it is told %+v (%v), and the disks are free: %v", name, s, err, free(table))
		}
		r.release(b)
		if !c.refused {
			continue
		}
		m := &state{}
		if _, err := r.goOn(t.Context(), running, observed{set: set}, m, step{}); err != nil || m.stopping == "" {
			t.Errorf("%s: one whose Job isn't there yet goes on (%v)", name, err)
		}
	}
	r := &Reconciler{Table: disklock.New(func(types.NamespacedName) {}, func(types.NamespacedName) {}), Copies: failing{}}
	r.Init()
	if _, err := r.takeDisks(t.Context(), made("b", 0, v1alpha1.CopyPending), setWith(nil), false); err == nil || !free(r.Table) {
		t.Errorf("it takes disks though it couldn't look: %v", err)
	}
}

// Whoever connects again and again keeps a Pod awake that serves the files.
func TestACopyGetsItsTurnThoughSomebodyIsAlwaysConnected(t *testing.T) {
	files := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "files", UID: "f", Labels: map[string]string{wellknown.DisksLabel: "survival-0", wellknown.FilesLabel: "survival-0"},
	}}
	live := clusterWith(t, files)
	now := clock
	r := &Reconciler{
		Client: live, Live: live, Now: func() time.Time { return now },
		Table: disklock.New(func(types.NamespacedName) {}, func(types.NamespacedName) {}),
	}
	r.Init()
	set := setWith(nil)
	var s step
	var err error
	for ; now.Before(clock.Add(6 * time.Minute)); now = now.Add(busyRetry) {
		if s, err = r.takeDisks(t.Context(), made("b", 0, v1alpha1.CopyPending), set, false); err != nil || s.reason == "" {
			break
		}
	}
	if waited := now.Sub(clock); err != nil || s.reason != "" || waited < 5*time.Minute {
		t.Errorf("after %s it says %+v (%v)", now.Sub(clock), s, err)
	}
}

// A game that was kept from starting goes first, and the next copy begins as soon as it has been.
func TestTheNextCopyWaitsForTheGameThatGoesFirstAndNoLonger(t *testing.T) {
	server := types.NamespacedName{Namespace: "games", Name: "survival-0"}
	r := &Reconciler{
		Client: clusterWith(t), Now: func() time.Time { return clock },
		Table: disklock.New(func(types.NamespacedName) {}, func(types.NamespacedName) {}),
	}
	r.Init()
	b := made("b", 0, v1alpha1.CopyRunning)
	if !r.hold(b) {
		t.Fatal("the disks aren't free")
	}
	if _, holder := r.Table.Start(server); holder == "" {
		t.Fatal("the game starts beside the copy")
	}
	r.release(b)
	if got := r.yieldsFor(server); got != gameFirst {
		t.Fatalf("the game goes first for %s, want %s", got, gameFirst)
	}
	r.siblings(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: server.Namespace, Name: server.Name, Labels: map[string]string{wellknown.ServerLabel: server.Name},
	}})
	if got := r.yieldsFor(server); got != 0 {
		t.Errorf("the next copy waits for another %s after the game has ended", got)
	}
}

type failing struct{}

func (failing) Of(context.Context, types.NamespacedName) ([]string, error) {
	return nil, errors.New("try again")
}

func TestADiskThatIsNotFilledIsNotCopied(t *testing.T) {
	from := &v1alpha1.DiskSource{Server: "template"}
	for name, c := range map[string]struct {
		noted  map[string]string
		from   *v1alpha1.DiskSource
		copied bool
	}{
		"it waits to be filled":      {map[string]string{wellknown.FilledAnnotation: ""}, from, false},
		"it is filled":               {map[string]string{wellknown.FilledAnnotation: "server template"}, from, true},
		"it began empty":             {nil, from, true},
		"nobody asks for it anymore": {map[string]string{wellknown.FilledAnnotation: ""}, nil, true},
	} {
		live := clusterWith(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: "survival-0-world", Annotations: c.noted, CreationTimestamp: metav1.NewTime(clock),
		}})
		set := setWith(nil)
		set.Spec.Storage[0].From = c.from
		s, err := (&Reconciler{Live: live}).prepared(t.Context(), made("b", 0, ""), set)
		if err != nil || (s.reason == "") != c.copied || (s.requeueAfter == 0) != c.copied {
			t.Errorf("%s: a Backup is told %+v (%v)", name, s, err)
		}
		used, err := (&Planner{Live: live}).usedAt(t.Context(), set)
		if err != nil || used.IsZero() == c.copied {
			t.Errorf("%s: it was used at %s (%v)", name, used, err)
		}
	}
}

// A disk nether of a Server mc-world would be the disk world-nether of a Server mc.
func TestAnotherServersDiskIsNotCopied(t *testing.T) {
	live := clusterWith(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "survival-0-world", Labels: disks.Labels("survival", nil), CreationTimestamp: metav1.NewTime(clock),
	}})
	set := setWith(nil)
	s, err := (&Reconciler{Live: live}).prepared(t.Context(), made("b", 0, ""), set)
	if err != nil || s.reason != reasons.NoDisk || !strings.Contains(s.message, "is a disk of Server survival") {
		t.Errorf("a Backup is told %+v (%v)", s, err)
	}
	if used, err := (&Planner{Live: live}).usedAt(t.Context(), set); err != nil || !used.IsZero() {
		t.Errorf("a copy is due since %s (%v)", used, err)
	}
}

// Whoever takes the snapshot API out of the cluster takes the snapshots with it.
func TestABackupEndsWithTheSnapshotAPI(t *testing.T) {
	b := made("b", time.Hour, v1alpha1.CopyRunning)
	b.UID, b.Finalizers = "b", []string{finalizer}
	b.Status.To, b.Status.Disks = &v1alpha1.BackupTarget{VolumeSnapshot: &v1alpha1.BackupSnapshot{}}, []string{"world"}
	c := clusterWith(t, b)
	live := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if o.GetObjectKind().GroupVersionKind() == copyjob.SnapshotKind {
				return &meta.NoKindMatchError{GroupKind: copyjob.SnapshotKind.GroupKind()}
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	r := &Reconciler{
		Client: c, Live: live, Now: func() time.Time { return clock }, Events: events.NewFakeRecorder(10),
		Table: disklock.New(func(types.NamespacedName) {}, func(types.NamespacedName) {}),
	}
	r.Init()
	key := client.ObjectKeyFromObject(b)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, b); err != nil || b.Status.Phase != v1alpha1.CopyFailed ||
		!strings.Contains(b.Status.Conditions[0].Message, "doesn't have the API snapshot.storage.k8s.io/v1 any more") {
		t.Errorf("its status is %+v (%v)", b.Status, err)
	}
	if err := c.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, b); !apierrors.IsNotFound(err) {
		t.Errorf("it can't be deleted: %v", err)
	}
}

// A policy engine may refuse it. Those that are to stay would go with their Backup, which therefore waits.
func TestABackupGoesThoughNobodyMayDeleteItsSnapshots(t *testing.T) {
	refused := func(o client.Object) error {
		if o.GetObjectKind().GroupVersionKind() != copyjob.SnapshotKind {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "volumesnapshots"}, o.GetName(), errors.New("not on Fridays"))
	}
	for keep, goes := range map[string]bool{"": true, "true": false} {
		b := made("b", time.Hour, v1alpha1.CopyComplete)
		b.UID, b.Finalizers = "b", []string{finalizer}
		b.Annotations = map[string]string{wellknown.KeepArchiveAnnotation: keep}
		b.Status.To, b.Status.Disks = &v1alpha1.BackupTarget{VolumeSnapshot: &v1alpha1.BackupSnapshot{}}, []string{"world"}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(copyjob.SnapshotKind)
		u.SetNamespace("games")
		u.SetName(copyjob.SnapshotName("b", "world"))
		u.SetOwnerReferences([]metav1.OwnerReference{ownerOf(b)})
		live := clusterWith(t, b, u)
		c := interceptor.NewClient(live.(client.WithWatch), interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if err := refused(o); err != nil {
					return err
				}
				return c.Delete(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if err := refused(o); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, opts...)
			},
		})
		key := client.ObjectKeyFromObject(b)
		if err := errors.Join(c.Delete(t.Context(), b), c.Get(t.Context(), key, b)); err != nil {
			t.Fatal(err)
		}
		now, emitted := b.DeletionTimestamp.Add(10*time.Minute), events.NewFakeRecorder(10)
		r := &Reconciler{
			Client: c, Live: live, Now: func() time.Time { return now }, Events: emitted,
			Table: disklock.New(func(types.NamespacedName) {}, func(types.NamespacedName) {}),
		}
		r.Init()
		pass := func() error {
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if err != nil && goes {
				t.Errorf("it fails with %v", err)
			}
			return c.Get(t.Context(), key, b)
		}
		if err := pass(); err != nil {
			t.Errorf("with %q it goes though its snapshot may yet be deleted: %v", keep, err)
		}
		now = now.Add(2 * time.Minute)
		if err := pass(); apierrors.IsNotFound(err) != goes {
			t.Errorf("with %q, two minutes later: %v", keep, err)
		}
		close(emitted.Events)
		if said := <-emitted.Events; strings.Contains(said, "BackupNotForgotten") != goes || strings.Contains(said, "not on Fridays") != goes {
			t.Errorf("with %q it says %q", keep, said)
		}
	}
}

// Another Server's copy may have a disk for copies that one node has at a time.
func TestADiskForCopiesIsWaitedForAsLongAsACopyMayTake(t *testing.T) {
	claim := v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "nas"}}
	hours := setWith(func(s *v1alpha1.BackupSpec) { s.Timeout = &metav1.Duration{Duration: 3 * time.Hour} })
	for name, c := range map[string]struct {
		to   v1alpha1.BackupTarget
		set  *disks.Set
		want time.Duration
	}{
		"on a disk":                 {claim, setWith(nil), 70 * time.Minute},
		"on a disk, of a large one": {claim, hours, 190 * time.Minute},
		"on a disk, of a lost one":  {claim, nil, 70 * time.Minute},
		"in a bucket":               {v1alpha1.BackupTarget{Bucket: &v1alpha1.BackupBucket{}}, hours, 10 * time.Minute},
		"a snapshot":                {v1alpha1.BackupTarget{VolumeSnapshot: &v1alpha1.BackupSnapshot{}}, hours, 10 * time.Minute},
	} {
		b := made("b", time.Hour, v1alpha1.CopyComplete)
		b.Status.To = &c.to
		if got := forgetWithin(b, c.set); got != c.want {
			t.Errorf("%s: it is tried for %s, want %s", name, got, c.want)
		}
	}
}

// The snapshots of a Backup belong to it, and would go with it.
func TestSnapshotsOutliveABackupThatSaysSo(t *testing.T) {
	for value, stays := range map[string]bool{"true": true, "": false, "false": false} {
		b := made("b", time.Hour, v1alpha1.CopyComplete)
		b.UID, b.Finalizers = "b", []string{finalizer}
		b.Annotations = map[string]string{wellknown.KeepArchiveAnnotation: value}
		b.Status.To, b.Status.Disks = &v1alpha1.BackupTarget{VolumeSnapshot: &v1alpha1.BackupSnapshot{}}, []string{"world", "mods"}
		another := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(copyjob.SnapshotKind)
		u.SetNamespace("games")
		u.SetName(copyjob.SnapshotName("b", "world"))
		u.SetOwnerReferences([]metav1.OwnerReference{another, ownerOf(b)})
		c := clusterWith(t, u)
		left, again, err := (&Reconciler{Client: c, Live: c}).forgotten(t.Context(), b, observed{})
		if left != "" || again != 0 || err != nil {
			t.Errorf("with %q: %s, %s, %v", value, left, again, err)
		}
		err = c.Get(t.Context(), client.ObjectKeyFromObject(u), u)
		if stays && (err != nil || len(u.GetOwnerReferences()) != 1) || !stays && !apierrors.IsNotFound(err) {
			t.Errorf("with %q it has the owners %v (%v)", value, u.GetOwnerReferences(), err)
		}
	}
}
