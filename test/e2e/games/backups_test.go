package games

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/minetest"
)

// backupAfter waits for a Backup of a world's first place that is complete and began after a time, to the
// second, and isn't one of those besides which it is.
func (w *world) backupAfter(ctx context.Context, after time.Time, besides ...string) *v1alpha1.Backup {
	w.t.Helper()
	var found *v1alpha1.Backup
	var list v1alpha1.BackupList
	err := env.WaitUntil(ctx, "a Backup is complete", func(ctx context.Context) (bool, error) {
		if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(w.game.Namespace)); err != nil {
			return false, err
		}
		for i := range list.Items {
			b := &list.Items[i]
			if b.Spec.Server == w.place(0).Name && !slices.Contains(besides, b.Name) &&
				b.Status.Phase == v1alpha1.CopyComplete && b.Status.StartTime.After(after.Truncate(time.Second).Add(-time.Second)) {
				found = b
			}
		}
		return found != nil, nil
	})
	if err != nil {
		w.t.Fatalf("%v: %+v", err, list.Items)
	}
	return found
}

// restore puts a Backup back, and waits until that is done.
func (w *world) restore(ctx context.Context, name string, backup *v1alpha1.Backup) {
	w.t.Helper()
	r := &v1alpha1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.game.Namespace, Name: name},
		Spec:       v1alpha1.RestoreSpec{Server: w.place(0).Name, Backup: backup.Name},
	}
	if err := suite.Cluster.Client.Create(ctx, r); err != nil {
		w.t.Fatal(err)
	}
	err := env.WaitUntil(ctx, "the Restore is complete", func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(r), r)
		if r.Status.Phase == v1alpha1.CopyFailed {
			w.t.Fatalf("the Restore failed: %+v", r.Status)
		}
		return r.Status.Phase == v1alpha1.CopyComplete, err
	})
	if err != nil {
		w.t.Fatalf("%v: %+v", err, r.Status)
	}
}

// loseDisk deletes the disk of a world's first place, for good.
func (w *world) loseDisk(ctx context.Context) {
	w.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.game.Namespace, Name: w.place(0).Name + "-world"}}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		w.t.Fatal(err)
	}
	before := claim.UID
	if err := suite.Cluster.Client.Delete(ctx, claim); err != nil {
		w.t.Fatal(err)
	}
	err := env.WaitUntil(ctx, "the disk is gone", func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		return apierrors.IsNotFound(err) || err == nil && claim.UID != before, client.IgnoreNotFound(err)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// What real players did to a real game's world is there after a sleep, a wake, an update, an edit over
// SFTP while it slept, and, from the backups that its sleeps made, after its disk is lost. The players see
// it in Debian's client.
func TestAWorldOutlastsTheLossOfItsDisk(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	s, files := newShare(ctx, t, ns)
	w := newShaft(ctx, t, ns, files, &v1alpha1.BackupSpec{
		To: backupTarget(ctx, t, ns), OnWake: v1alpha1.BackupOnWakeWait, Keep: v1alpha1.BackupRetention{Last: 10},
	})
	w.ready(ctx, 0)
	s.find(ctx, w.world)
	w.address = suite.ClusterIP(ctx, t, w.game, minetest.Port)
	w.dig(ctx, false)
	w.stop(ctx)
	// A backup may be under way: players wait for it, and aren't lost.
	w.dig(ctx, false)
	editGameType(ctx, t, w.game, func(spec *v1alpha1.GameTypeSpec) {
		game := &spec.Template.Spec.Template.Spec.Containers[0]
		game.Env = append(game.Env, corev1.EnvVar{Name: "VERSION", Value: "2"})
	})
	w.stop(ctx)
	w.dig(ctx, false)
	began := time.Now()
	w.stop(ctx)
	first := w.backupAfter(ctx, began)
	if !first.Status.AtRest || first.Status.Files == 0 || first.Status.Size.IsZero() || meta.FindStatusCondition(first.Status.Conditions, "Complete") == nil {
		t.Errorf("the status of a Backup is %+v", first.Status)
	}

	began = time.Now()
	w.greet(ctx, s)
	edited := w.backupAfter(ctx, began, first.Name) // once the pod that served the files is gone

	w.loseDisk(ctx)
	w.restore(ctx, "after-the-loss", edited)
	w.dig(ctx, true)
	w.stop(ctx)

	// The world as it was before: what was dug and put there since isn't.
	w.restore(ctx, "back-in-time", first)
	w.forget(1)
	w.dig(ctx, false)
}

// backupTarget makes a place for backups.
func backupTarget(ctx context.Context, t *testing.T, namespace string) v1alpha1.BackupTarget {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "backups"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if err := suite.Cluster.Client.Create(ctx, claim); err != nil {
		t.Fatal(err)
	}
	return v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: claim.Name}}
}

// A Server that never ran has a world that somebody put there, and a Backup of it in a bucket. Another
// Server begins with that, and a third with the disk of the first.
func TestAServerBeginsWithAnothersWorld(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	bucket, err := suite.Cluster.Bucket(ctx, ns, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	s, files := newShare(ctx, t, ns)
	create := func(name string, from *v1alpha1.DiskSource, backup *v1alpha1.BackupSpec) {
		t.Helper()
		spec := suite.Cluster.ServerSpec()
		// Those that begin with something are filled at their first start.
		spec.Running, spec.Files, spec.Backup = new(from != nil), files, backup
		spec.Storage = []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi"), From: from}}
		if err := suite.Cluster.Client.Create(ctx, &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	create("first", nil, &v1alpha1.BackupSpec{To: v1alpha1.BackupTarget{Bucket: bucket}, OnSleep: new(false)})
	s.findServer(ctx, ns, "first")
	world := s.write("world", 1<<20)
	s.do(ctx, "mkdir region", "put "+s.local+"/world region/r.0.0.mca")
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "by-hand"}, Spec: v1alpha1.BackupRequest{Server: "first"}}
	if err := suite.Cluster.Client.Create(ctx, b); err != nil {
		t.Fatal(err)
	}
	err = env.WaitUntil(ctx, "the Backup is complete", func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(b), b)
		if b.Status.Phase == v1alpha1.CopyFailed {
			t.Fatalf("the Backup failed: %+v", b.Status)
		}
		return b.Status.Phase == v1alpha1.CopyComplete, err
	})
	if err != nil {
		t.Fatalf("%v: %+v", err, b.Status)
	}
	for server, from := range map[string]*v1alpha1.DiskSource{"second": {Backup: b.Name}, "third": {Server: "first"}} {
		create(server, from, nil)
	}
	for _, server := range []string{"second", "third"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: server + "-world"}}
		err := env.WaitUntil(ctx, "the disk of the "+server+" is filled", func(ctx context.Context) (bool, error) {
			err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
			return claim.Annotations[wellknown.FilledAnnotation] != "", client.IgnoreNotFound(err)
		})
		if err != nil {
			t.Fatalf("%v: %v", err, claim.Annotations)
		}
		s.findServer(ctx, ns, server)
		s.do(ctx, "get region/r.0.0.mca "+s.local+"/"+server)
		s.same(server, world)
	}
}
