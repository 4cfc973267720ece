package restore

import (
	"context"
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// toRestore is what Restore undo needs, but for the PodTemplate, and the template.
func toRestore(to v1alpha1.BackupTarget) (needs []client.Object, template *corev1.PodTemplate) {
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival", UID: "survival"}}
	s.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world"}}
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-1"}}
	b.Spec.Server, b.Status = "survival", v1alpha1.BackupStatus{Phase: v1alpha1.CopyComplete, To: &to, Disks: []string{"world"}}
	template = &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "dormouse-system", Name: "sidecar"}}
	template.Template.Spec.Containers = []corev1.Container{{Name: "sidecar"}}
	return []client.Object{s, b, undo("")}, template
}

// passes makes some passes, and returns the Restore after them.
func passes(t *testing.T, r *Reconciler, number int) *v1alpha1.Restore {
	t.Helper()
	key := client.ObjectKey{Namespace: "games", Name: "undo"}
	for range number {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	rst := &v1alpha1.Restore{}
	if err := r.Live.Get(t.Context(), key, rst); err != nil {
		t.Fatal(err)
	}
	return rst
}

// What lacks keeps no player out.
func TestARestoreBeginsOnceAllIsThere(t *testing.T) {
	inClaim, inSnapshot := v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}}, v1alpha1.BackupTarget{VolumeSnapshot: &v1alpha1.BackupSnapshot{}}
	for name, c := range map[string]struct {
		to       v1alpha1.BackupTarget
		template bool
		says     string
	}{
		"no PodTemplate": {inClaim, false, "apply config/sidecar"},
		"no snapshot":    {inSnapshot, true, "There is no VolumeSnapshot survival-1-world."},
	} {
		t.Run(name, func(t *testing.T) {
			objects, template := toRestore(c.to)
			if c.template {
				objects = append(objects, template)
			}
			r, has := reconcilerWith(t, objects...)
			r.SidecarTemplate = client.ObjectKeyFromObject(template)
			rst := passes(t, r, 3)
			if rst.Status.Phase != v1alpha1.CopyPending || !strings.Contains(messageOf(rst), c.says) || len(has) > 0 {
				t.Errorf("it is %s and says %q, and the disks are %v", rst.Status.Phase, messageOf(rst), has)
			}
		})
	}
	c := clusterWith(t)
	live, _ := c.Client.(client.WithWatch)
	c.Live = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return &meta.NoKindMatchError{GroupKind: copyjob.SnapshotKind.GroupKind()}
		},
	})
	if _, err := c.snapshot(t.Context(), "games", "survival-1-world"); !strings.Contains(lackOf(err), "doesn't serve") {
		t.Errorf("of a cluster without snapshots it says %v", err)
	}
}

// Nothing is restored onto a disk that is another Server's by its name.
func TestARestoreLeavesAnotherServersDiskAlone(t *testing.T) {
	objects, template := toRestore(v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}})
	others := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-world", Labels: disks.Labels("surv", nil)}}
	r, _ := reconcilerWith(t, append(objects, template, others)...)
	r.SidecarTemplate = client.ObjectKeyFromObject(template)
	if rst := passes(t, r, 3); rst.Status.Phase != v1alpha1.CopyPending || !strings.Contains(messageOf(rst), "is a disk of Server surv:") {
		t.Errorf("it is %s and says %q", rst.Status.Phase, messageOf(rst))
	}
}

// filesOf is a Pod that serves the files of a Server.
func filesOf(server string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: server + "-files-x", UID: "f", Labels: map[string]string{wellknown.DisksLabel: server, wellknown.FilesLabel: server},
	}}
}

// The table says that it has waited for long enough for what serves the files.
func TestARestoreGetsItsTurnThoughSomebodyIsAlwaysConnected(t *testing.T) {
	objects, template := toRestore(v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}})
	r, _ := reconcilerWith(t, append(objects, template, filesOf("survival"))...)
	r.SidecarTemplate = client.ObjectKeyFromObject(template)
	if rst := passes(t, r, 1); rst.Status.Phase != v1alpha1.CopyPending || !strings.Contains(messageOf(rst), "survival-files-x") {
		t.Errorf("it is %s and says %q", rst.Status.Phase, messageOf(rst))
	}
	if rst := passes(t, r, 1); rst.Status.Phase != v1alpha1.CopyRunning {
		t.Errorf("it is %s and says %q", rst.Status.Phase, messageOf(rst))
	}
}

// Of one that is Complete only what was there before is to be deleted, and that can wait.
func TestACompleteRestorePutsNobodyOut(t *testing.T) {
	objects, template := toRestore(v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}})
	objects[len(objects)-1] = undo(v1alpha1.CopyComplete, wasReady)
	r, has := reconcilerWith(t, append(objects, template, filesOf("survival"))...)
	r.SidecarTemplate = client.ObjectKeyFromObject(template)
	passes(t, r, 1)
	if err := r.Live.Get(t.Context(), client.ObjectKeyFromObject(filesOf("survival")), &corev1.Pod{}); err != nil || len(has) > 0 {
		t.Errorf("the Pod that serves the files: %v; the disks are %v", err, has)
	}
}

// What was there before has just been deleted, or it has failed, and a pass by what the cache had before took the
// disks once more: the game could never start again.
func TestARestoreThatIsOverHasNoDisks(t *testing.T) {
	for name, rst := range map[string]*v1alpha1.Restore{
		"it is Complete, and kept nothing": undo(v1alpha1.CopyComplete, wasReady, func(r *v1alpha1.Restore) { r.Status.PreviousKept = false }),
		"it has failed":                    undo(v1alpha1.CopyFailed),
	} {
		t.Run(name, func(t *testing.T) {
			r, has := reconcilerWith(t, rst)
			if len(has) == 0 {
				t.Fatal("it has no disks before")
			}
			passes(t, r, 1)
			if len(has) > 0 {
				t.Errorf("it has the disks %v", has)
			}
		})
	}
}

// refusing has the API server refuse Jobs, but answer nothing to the first if lost is set.
func refusing(r *Reconciler, lost bool) {
	refused, _ := r.Client.(client.WithWatch)
	r.Client = interceptor.NewClient(refused, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*batchv1.Job); !ok {
				return c.Create(ctx, o, opts...)
			}
			if lost {
				lost = false
				return errors.New("the connection was lost")
			}
			return apierrors.NewForbidden(batchv1.Resource("jobs"), o.GetName(), errors.New("exceeded quota: small"))
		},
	})
}

// A Job that the API server refuses is the end of a Restore that has touched nothing, but not of one
// that may have: another try goes on there. Whoever leads next knows which of the two it is.
func TestARestoreThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ mayHaveBegun, leaderChanges bool }{
		"nothing was made":                            {false, false},
		"nothing was made, and another leads":         {false, true},
		"a Job may have been made":                    {true, false},
		"a Job may have been made, and another leads": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects, template := toRestore(v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}})
			r, has := reconcilerWith(t, append(objects, template)...)
			r.SidecarTemplate = client.ObjectKeyFromObject(template)
			refusing(r, c.mayHaveBegun)
			another := func() {
				if c.leaderChanges {
					clear(has)
					r.Init()
				}
			}
			rst := passes(t, r, 1)
			if rst.Status.Phase != v1alpha1.CopyRunning || reasonOf(rst) != reasons.Preparing {
				t.Fatalf("it is %+v", rst.Status)
			}
			another()
			key := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(rst)}
			if _, err := r.Reconcile(t.Context(), key); (err != nil) != c.mayHaveBegun {
				t.Fatal(err)
			}
			want, says := v1alpha1.CopyFailed, "The disks are as they were."
			if c.mayHaveBegun {
				want, says = v1alpha1.CopyRunning, "It goes on once that is mended"
				another()
			}
			rst = passes(t, r, 1)
			if said := messageOf(rst); rst.Status.Phase != want || !strings.Contains(said, "exceeded quota: small") || !strings.Contains(said, says) || (len(has) > 0) != c.mayHaveBegun {
				t.Errorf("it is %s and says %q, and the disks are %v", rst.Status.Phase, said, has)
			}
		})
	}
}
