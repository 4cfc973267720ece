package security

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// liveServers does with Servers and Fleets all that people do with them.
func liveServers(ctx context.Context, t *testing.T) {
	t.Helper()
	_, ns := suite.Namespace(t)
	key := types.NamespacedName{Namespace: ns, Name: "lobbies"}
	exposed := suite.Cluster.ServerSpec()
	exposed.Ports[0].Expose = v1alpha1.ExposeHostPort
	fleet, err := suite.Cluster.CreateFleet(ctx, ns, key.Name, 2, exposed)
	if err != nil {
		t.Fatal(err)
	}
	disk, claim := withDisk(ctx, t, ns)
	waitReady(ctx, t, key, 2)
	guard := &policyv1.PodDisruptionBudget{}
	if err := suite.Cluster.Client.Get(ctx, types.NamespacedName{Namespace: ns, Name: "dormouse-deletion-guard"}, guard); err != nil {
		t.Fatalf("read the namespace's deletion guard: %v", err)
	}

	// One goes at once; the other has a player, is drained, and goes after that.
	servers, err := suite.Cluster.Servers(ctx, ns, key.Name)
	if err != nil {
		t.Fatal(err)
	}
	occupied := slices.Collect(maps.Values(servers))[0]
	setPlayers(ctx, t, occupied, 1)
	suite.ScaleFleet(ctx, t, key, 1)
	waitReady(ctx, t, key, 1)
	suite.ScaleFleet(ctx, t, key, 0)
	waitReady(ctx, t, key, 0)
	setPlayers(ctx, t, occupied, 0)
	gone(ctx, t, occupied)
	// Somebody takes the guard from a Server by force: its Pod is left behind.
	orphan(ctx, t, ns)
	liveRestore(ctx, t, ns)
	// A disk that was never given, with a Server that never ran.
	if err := suite.Cluster.Client.Delete(ctx, disk); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, disk, claim)
	if err := suite.Cluster.Client.Delete(ctx, fleet); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, fleet, guard)
}

// liveGameType updates a GameType, has it scaled and deletes it.
func liveGameType(ctx context.Context, t *testing.T) {
	t.Helper()
	_, ns := suite.Namespace(t)
	key := types.NamespacedName{Namespace: ns, Name: "arena"}
	if err := suite.Cluster.CreateGameType(ctx, ns, key.Name, 1); err != nil {
		t.Fatal(err)
	}
	updated := func(number int64) *v1alpha1.GameType {
		t.Helper()
		gt, err := env.Wait(ctx, suite.Cluster, &v1alpha1.GameTypeList{}, key, "updated", func(gt *v1alpha1.GameType) bool {
			r := gt.Status.CurrentRevision
			return r != nil && r.Number == number && gt.Status.ReadyReplicas == 1 && gt.Status.ObservedGeneration == gt.Generation
		})
		if err != nil {
			t.Fatal(err)
		}
		return gt
	}
	gt := updated(1)
	changed := gt.DeepCopy()
	changed.Spec.Template.Metadata.Labels = map[string]string{"version": "2"}
	changed.Spec.Service.Annotations = map[string]string{"example.com/a": "b"}
	changed.Spec.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: time.Hour}}
	if err := suite.Cluster.Client.Patch(ctx, changed, client.MergeFrom(gt)); err != nil {
		t.Fatal(err)
	}
	updated(2)
	autoscale(ctx, t, key)
	if err := suite.Cluster.Client.Delete(ctx, updated(2)); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, gt)
}

// autoscale has a GameAutoscaler decide about a GameType of one Server, and takes it away.
func autoscale(ctx context.Context, t *testing.T, key types.NamespacedName) {
	t.Helper()
	gas := &v1alpha1.GameAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: v1alpha1.GameAutoscalerSpec{
			TargetRef: v1alpha1.AutoscalerTarget{Name: key.Name}, MaxReplicas: 1,
			Policies: []v1alpha1.AutoscalerPolicy{{Name: "spare", Buffer: &v1alpha1.BufferPolicy{Servers: new(intstr.FromInt32(1))}}},
		},
	}
	if err := suite.Cluster.Client.Create(ctx, gas); err != nil {
		t.Fatalf("create GameAutoscaler %s: %v", key, err)
	}
	_, err := env.Wait(ctx, suite.Cluster, &v1alpha1.GameAutoscalerList{}, key, "evaluated", func(gas *v1alpha1.GameAutoscaler) bool {
		return gas.Status.DesiredReplicas == 1
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.Client.Delete(ctx, gas); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, gas)
}

// withDisk makes a Server whose disk goes with it. No node takes its Pod while
// nobody provides the disk, which nobody here does.
func withDisk(ctx context.Context, t *testing.T, ns string) (*v1alpha1.Server, *corev1.PersistentVolumeClaim) {
	t.Helper()
	spec := suite.Cluster.ServerSpec()
	spec.Storage = []v1alpha1.StorageSpec{{
		Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi"), OnDelete: v1alpha1.StorageDelete, StorageClassName: new("nobody-provides"),
	}}
	s, err := suite.Cluster.CreateServer(ctx, ns, "disk", spec)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerPending); err != nil {
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := suite.Cluster.Client.Get(ctx, types.NamespacedName{Namespace: ns, Name: "disk-world"}, claim); err != nil {
		t.Fatalf("read the claim of Server %s: %v", s.Name, err)
	}
	// A larger disk is asked for. And a Fleet's Servers have disks that stay.
	larger := s.DeepCopy()
	larger.Spec.Storage[0].Size = resource.MustParse("2Gi")
	if err := suite.Cluster.Client.Patch(ctx, larger, client.MergeFrom(s)); err != nil {
		t.Fatal(err)
	}
	worlds, err := suite.Cluster.CreateFleet(ctx, ns, "worlds", 1, spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Cluster.WaitState(ctx, types.NamespacedName{Namespace: ns, Name: "worlds-0"}, v1alpha1.ServerPending); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.Client.Delete(ctx, worlds); err != nil {
		t.Fatal(err)
	}
	return s, claim
}

// liveRestore puts a Backup back, and gives that up while it runs: its Job waits for a disk with copies
// that isn't there.
func liveRestore(ctx context.Context, t *testing.T, ns string) {
	t.Helper()
	spec := suite.Cluster.ServerSpec()
	spec.Running = new(false)
	spec.Storage = []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi"), OnDelete: v1alpha1.StorageDelete}}
	s, err := suite.Cluster.CreateServer(ctx, ns, "restored", spec)
	if err != nil {
		t.Fatal(err)
	}
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "restored-1"}, Spec: v1alpha1.BackupRequest{Server: s.Name}}
	if err := suite.Cluster.Client.Create(ctx, b); err != nil {
		t.Fatal(err)
	}
	taken := b.DeepCopy()
	taken.Status.Phase, taken.Status.Disks = v1alpha1.CopyComplete, []string{"world"}
	taken.Status.To = &v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "copies"}}
	if err := suite.Cluster.Client.Status().Patch(ctx, taken, client.MergeFrom(b)); err != nil {
		t.Fatal(err)
	}
	undo := &v1alpha1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "undo"}, Spec: v1alpha1.RestoreSpec{Server: s.Name, Backup: b.Name}}
	if err := suite.Cluster.Client.Create(ctx, undo); err != nil {
		t.Fatal(err)
	}
	_, err = env.Wait(ctx, suite.Cluster, &v1alpha1.RestoreList{}, client.ObjectKeyFromObject(undo), "running", func(r *v1alpha1.Restore) bool {
		return r.Status.Phase == v1alpha1.CopyRunning
	})
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "restore-undo"}}
	err = env.WaitUntil(ctx, "the Restore has its Job", func(ctx context.Context) (bool, error) {
		err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(job), job)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{undo, s} {
		if err := suite.Cluster.Client.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	gone(ctx, t, undo, job, s)
}

// orphan makes a Server with a player, deletes it and takes its guard away.
func orphan(ctx context.Context, t *testing.T, ns string) {
	t.Helper()
	s, err := suite.Cluster.CreateServer(ctx, ns, "orphan", suite.Cluster.ServerSpec())
	if err != nil {
		t.Fatal(err)
	}
	if s, err = suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerReady); err != nil {
		t.Fatal(err)
	}
	setPlayers(ctx, t, s, 1)
	pod := &corev1.Pod{}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), pod); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.Client.Delete(ctx, s); err != nil {
		t.Fatal(err)
	}
	if s, err = suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerDraining); err != nil {
		t.Fatal(err)
	}
	without := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := suite.Cluster.Client.Patch(ctx, s, without); err != nil {
		t.Fatalf("take the guard from Server %s: %v", s.Name, err)
	}
	gone(ctx, t, s, pod)
}

func waitReady(ctx context.Context, t *testing.T, key types.NamespacedName, n int32) {
	t.Helper()
	_, err := suite.Cluster.WaitFleet(ctx, key, "ready", func(f *v1alpha1.Fleet) bool {
		return f.Status.Replicas == n && f.Status.ReadyReplicas == n && f.Status.ObservedGeneration == f.Generation
	})
	if err != nil {
		t.Fatal(err)
	}
}

// setPlayers lets so many play, and waits until the Server's Pod tells eviction.
func setPlayers(ctx context.Context, t *testing.T, s *v1alpha1.Server, n int32) {
	t.Helper()
	if err := suite.Cluster.SetPlayers(ctx, s, int(n)); err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		return // It may be gone before anybody has looked.
	}
	_, err := env.Wait(ctx, suite.Cluster, &corev1.PodList{}, client.ObjectKeyFromObject(s), "guarded from eviction", func(pod *corev1.Pod) bool {
		return pod.Labels[wellknown.DeletionAllowedLabel] == "false"
	})
	if err != nil {
		t.Fatal(err)
	}
}

func gone(ctx context.Context, t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := suite.Cluster.WaitGone(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
}
