package restore

import (
	"context"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// reconcilerWith is a Reconciler that has the disks of Restore undo. Its cache is behind: it has no Job.
func reconcilerWith(t *testing.T, objects ...client.Object) (*Reconciler, table) {
	t.Helper()
	c, has := clusterWith(t, objects...), table{}
	live, _ := c.Client.(client.WithWatch)
	c.Client = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*batchv1.Job); ok {
				return apierrors.NewNotFound(batchv1.Resource("jobs"), key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	r := &Reconciler{Cluster: *c, Events: events.NewFakeRecorder(10), Disks: has, Copies: nobody{}}
	r.Init()
	if !r.hold(undo("")) {
		t.Fatal("the disks aren't free")
	}
	return r, has
}

// undoJob is the Job of Restore undo, which is between two tries and stays when it is deleted, and its Pod.
func undoJob() (*batchv1.Job, *corev1.Pod) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "restore-undo", UID: "job", Finalizers: []string{metav1.FinalizerDeleteDependents},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(undo(""), v1alpha1.GroupVersion.WithKind("Restore"))},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "restore-undo-x", Labels: map[string]string{wellknown.DisksLabel: "survival", copyjob.ManagedByLabel: wellknown.ManagedBy},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
	}}
	return job, pod
}

// Neither a Restore that is deleted nor one whose finalizer was taken away lets the disks go before its
// Job and the Pod are gone, whatever the cache says.
func TestADeletedRestoreHasTheDisksUntilItsJobIsGone(t *testing.T) {
	for name, there := range map[string]bool{"it is being deleted": true, "its finalizer was taken away": false} {
		t.Run(name, func(t *testing.T) {
			job, pod := undoJob()
			objects := []client.Object{job}
			if there {
				objects = append(objects, undo(v1alpha1.CopyRunning, deleted))
			}
			r, has := reconcilerWith(t, objects...)
			look := func(free bool) {
				t.Helper()
				result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "games", Name: "undo"}})
				if err != nil || free != (len(has) == 0) || free != (result.RequeueAfter == 0) {
					t.Errorf("the disks are %v, and it looks again after %s (%v)", has, result.RequeueAfter, err)
				}
			}
			look(false)
			if err := r.Live.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || job.DeletionTimestamp.IsZero() {
				t.Fatalf("its Job goes on (%v)", err)
			}
			pod.ResourceVersion = ""
			if err := r.Client.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			job.Finalizers = nil
			if err := r.Client.Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			look(false)
			if err := r.Client.Delete(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			look(true)
		})
	}
}

// settled has the Job that makes disks whole succeed.
func settled(t *testing.T, r *Reconciler, settles *batchv1.Job) {
	t.Helper()
	settles.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	if err := r.Client.Status().Update(t.Context(), settles); err != nil {
		t.Fatal(err)
	}
	ended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "settle-undo-x", Labels: map[string]string{batchv1.ControllerUidLabel: string(settles.UID)}}}
	ended.Status.Phase = corev1.PodSucceeded
	ended.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: `{"disks":["world"]}`}}}}
	if err := r.Client.Create(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
}

// Its Job was killed, maybe while files changed places: the disks are held until another one says that they
// are whole, also by a leader that knows nothing of the first.
func TestADeletedRestoreHoldsTheDisksUntilTheyAreWhole(t *testing.T) {
	objects, template := toRestore(v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}})
	rst := undo(v1alpha1.CopyRunning, deleted)
	rst.Status.Disks = []string{"world"}
	rst.Status.Conditions = []metav1.Condition{{Type: conditions.Complete, Status: metav1.ConditionFalse, Reason: reasons.Restoring}}
	objects[len(objects)-1] = rst
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-world"}}
	job, _ := undoJob()
	job.Finalizers = nil
	c, has := clusterWith(t, append(objects, template, claim, job)...), table{}
	c.SidecarTemplate = client.ObjectKeyFromObject(template)
	r := &Reconciler{Cluster: *c, Events: events.NewFakeRecorder(10), Disks: has, Copies: nobody{}}
	r.Init()
	key := client.ObjectKeyFromObject(rst)
	pass := func() {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	settles := &batchv1.Job{}
	for range 3 {
		pass()
	}
	if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "games", Name: "settle-undo"}, settles); err != nil || len(has) == 0 {
		t.Fatalf("the disks are %v (%v)", has, err)
	}
	if args := settles.Spec.Template.Spec.Containers[0].Args; args[0] != "settle" || args[1] != "--disk=world=/disks/world" || args[2] != "--id="+idOf(rst) {
		t.Errorf("its Job runs %q", args)
	}
	settled(t, r, settles)
	for range 2 {
		pass()
	}
	if err := r.Live.Get(t.Context(), key, rst); !apierrors.IsNotFound(err) || len(has) > 0 {
		t.Errorf("once they are whole the disks are %v, and the Restore has %v (%v)", has, rst.Finalizers, err)
	}
}

// The Server went with it, and its disks stay: they are made whole all the same, with what the Restore knows of
// the game.
func TestDisksThatADeletedServerLeavesAreMadeWhole(t *testing.T) {
	game := v1alpha1.ServerSpec{}
	game.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), FSGroup: new(int64(2000))}
	game.Template.Spec.Tolerations = []corev1.Toleration{{Key: "games"}}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, disk := range []string{"world", "logs"} {
		claims[disk] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-" + disk}}
	}
	other := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival"}}
	other.Spec.Storage = []v1alpha1.StorageSpec{{Name: "logs"}}
	for name, c := range map[string]struct {
		left   []client.Object
		mounts []string
	}{
		"no disk is left":            {nil, nil},
		"one is left":                {[]client.Object{claims["world"]}, []string{"world"}},
		"both are left":              {[]client.Object{claims["world"], claims["logs"]}, []string{"world", "logs"}},
		"another Server has another": {[]client.Object{claims["world"], claims["logs"], other}, []string{"logs", "world"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, template := toRestore(v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}})
			rst := undo(v1alpha1.CopyRunning, deleted)
			rst.Status.Disks, rst.Status.Pod = []string{"world", "logs"}, disks.Taken(&game)
			rst.Status.Conditions = []metav1.Condition{{Type: conditions.Complete, Status: metav1.ConditionFalse, Reason: reasons.Restoring}}
			r, has := reconcilerWith(t, append(append(c.left, template, rst), objects[1:len(objects)-1]...)...)
			r.SidecarTemplate = client.ObjectKeyFromObject(template)
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(rst)}); err != nil {
				t.Fatal(err)
			}
			if len(c.mounts) == 0 {
				if err := r.Live.Get(t.Context(), client.ObjectKeyFromObject(rst), rst); !apierrors.IsNotFound(err) || len(has) > 0 {
					t.Errorf("the disks are %v, and it isn't gone (%v)", has, err)
				}
				return
			}
			job := &batchv1.Job{}
			if err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "games", Name: "settle-undo"}, job); err != nil || len(has) == 0 {
				t.Fatalf("the disks are %v (%v)", has, err)
			}
			spec := job.Spec.Template.Spec
			var mounts []string
			for _, v := range spec.Volumes {
				mounts = append(mounts, strings.TrimPrefix(v.PersistentVolumeClaim.ClaimName, "survival-"))
			}
			if !slices.Equal(mounts, c.mounts) {
				t.Errorf("its Job has %q, want %q", mounts, c.mounts)
			}
			if user := spec.Containers[0].SecurityContext.RunAsUser; len(c.left) < 3 && (user == nil || *user != 1000 || *spec.SecurityContext.FSGroup != 2000 || len(spec.Tolerations) != 1) {
				t.Errorf("its Pod has user %v, %+v and tolerates %v", user, spec.SecurityContext, spec.Tolerations)
			}
		})
	}
}

// A Restore that runs knows what its Pods take from the game's, and forgets it when it ends.
func TestARestoreKnowsTheGamesPodWhileItRuns(t *testing.T) {
	objects, template := toRestore(v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}})
	objects[0].(*v1alpha1.Server).Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000))}
	r, _ := reconcilerWith(t, append(objects, template)...)
	r.SidecarTemplate = client.ObjectKeyFromObject(template)
	rst := passes(t, r, 2)
	if rst.Status.Phase != v1alpha1.CopyRunning || rst.Status.Pod == nil || *rst.Status.Pod.SecurityContext.RunAsUser != 1000 {
		t.Fatalf("its status is %+v", rst.Status)
	}
	if err := r.say(t.Context(), rst.DeepCopy(), rst, v1alpha1.CopyFailed, reasons.RestoreFailed, "broken"); err != nil || passes(t, r, 0).Status.Pod != nil {
		t.Errorf("it keeps it (%v)", err)
	}
}

// Nobody knows how far a Job came that was killed. After the second one the disks are made whole, and then the
// game may start.
func TestARestoreWhoseJobsAreKilledLeavesTheDisksWhole(t *testing.T) {
	objects, template := toRestore(v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}})
	rst := undo(v1alpha1.CopyRunning, withGuard)
	rst.Status.Disks = []string{"world"}
	rst.Status.Conditions = []metav1.Condition{{Type: conditions.Complete, Status: metav1.ConditionFalse, Reason: reasons.Restoring}}
	objects[len(objects)-1] = rst
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-world"}}
	job, _ := undoJob()
	job.Finalizers = nil
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded}}
	c, has := clusterWith(t, append(objects, template, claim, job)...), table{}
	c.SidecarTemplate = client.ObjectKeyFromObject(template)
	r := &Reconciler{Cluster: *c, Events: events.NewFakeRecorder(10), Disks: has, Copies: nobody{}}
	r.Init()
	r.repeated[rst.UID] = true
	rst = passes(t, r, 4)
	settles := &batchv1.Job{}
	err := r.Live.Get(t.Context(), client.ObjectKey{Namespace: "games", Name: "settle-undo"}, settles)
	if err != nil || len(has) == 0 || rst.Status.Phase != v1alpha1.CopyRunning {
		t.Fatalf("it is %s, and the disks are %v (%v)", rst.Status.Phase, has, err)
	}
	// That one is killed as well, and then can't be made for a while: nothing writes the Backup again.
	settles.Status.Conditions = job.Status.Conditions
	if err := r.Client.Status().Update(t.Context(), settles); err != nil {
		t.Fatal(err)
	}
	r.SidecarTemplate.Name = "none"
	passes(t, r, 3)
	r.SidecarTemplate = client.ObjectKeyFromObject(template)
	r.pauses[rst.UID] = between{}
	passes(t, r, 3)
	var jobs batchv1.JobList
	if err := r.Live.List(t.Context(), &jobs); err != nil || len(jobs.Items) != 1 || jobs.Items[0].Name != "settle-undo" || len(has) == 0 {
		t.Fatalf("the Jobs are %v, and the disks %v (%v)", jobs.Items, has, err)
	}
	settled(t, r, &jobs.Items[0])
	if rst = passes(t, r, 3); rst.Status.Phase != v1alpha1.CopyFailed || !strings.Contains(messageOf(rst), "killed twice") || len(has) > 0 {
		t.Errorf("it is %s and says %q, and the disks are %v", rst.Status.Phase, messageOf(rst), has)
	}
}

// With a namespace its disks go, and no Job can be made.
func TestADeletedRestoreGoesWithItsNamespace(t *testing.T) {
	objects, template := toRestore(v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}})
	rst := undo(v1alpha1.CopyRunning, deleted)
	rst.Status.Disks = []string{"world"}
	objects[len(objects)-1] = rst
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-world"}}
	r, has := reconcilerWith(t, append(objects, template, claim)...)
	r.SidecarTemplate = client.ObjectKeyFromObject(template)
	live, _ := r.Client.(client.WithWatch)
	r.Client = interceptor.NewClient(live, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			err := apierrors.NewForbidden(batchv1.Resource("jobs"), "settle-undo", nil)
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		},
	})
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(rst)}); err != nil || len(has) > 0 {
		t.Errorf("the disks are %v (%v)", has, err)
	}
}

// A Job that may make another Pod is deleted so that it stays until its Pods are gone.
func TestAJobThatRunsStaysUntilItsPodsAreGone(t *testing.T) {
	for _, ended := range []bool{false, true} {
		job, _ := undoJob()
		want := metav1.DeletePropagationForeground
		if ended {
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
			want = metav1.DeletePropagationBackground
		}
		c := clusterWith(t, job)
		live, _ := c.Client.(client.WithWatch)
		var got *metav1.DeletionPropagation
		c.Client = interceptor.NewClient(live, interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				got = (&client.DeleteOptions{}).ApplyOptions(opts).PropagationPolicy
				return c.Delete(ctx, o, opts...)
			},
		})
		if err := c.end(t.Context(), job); err != nil || got == nil || *got != want {
			t.Errorf("it is deleted with %v (%v), want %s", got, err, want)
		}
	}
}
