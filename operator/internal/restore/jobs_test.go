package restore

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
)

// clusterWith is a cluster with some objects.
func clusterWith(t *testing.T, objects ...client.Object) *Cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.Restore{}).Build()
	return &Cluster{Client: c, Live: c}
}

// Of a snapshot a disk is made that is large enough for both, is only read, and goes afterwards.
func TestASnapshotIsReadFromADiskOfItsOwn(t *testing.T) {
	snapshot := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"restoreSize": "3Gi"}}}
	snapshot.SetAPIVersion(copyjob.SnapshotKind.GroupVersion().String())
	snapshot.SetKind("VolumeSnapshot")
	snapshot.SetNamespace("games")
	snapshot.SetName("survival-1-world")
	c := clusterWith(t, snapshot)
	o := idle()
	o.backup.Name, o.backup.Status.To = "survival-1", &v1alpha1.BackupTarget{VolumeSnapshot: &v1alpha1.BackupSnapshot{}}
	o.set.Spec.Storage[0].Size, o.set.Spec.Storage[0].StorageClassName = resource.MustParse("1Gi"), new("fast")
	r := undo("")
	options := copyjob.Options{Name: "restore-undo", Set: o.set, Owner: *metav1.NewControllerRef(r, v1alpha1.GroupVersion.WithKind("Restore"))}
	options, err := c.fromBackup(t.Context(), options, o.backup, "undo")
	if err != nil {
		t.Fatal(err)
	}
	if options.Source["world"] != "restore-undo-world" || !slices.Contains(options.Args, "--from=dir:/source") || options.Target != nil {
		t.Errorf("it is read from %v with %q", options.Source, options.Args)
	}
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: "games", Name: "restore-undo-world"}
	if err := c.Live.Get(t.Context(), key, claim); err != nil {
		t.Fatal(err)
	}
	from := claim.Spec.DataSource
	if size := claim.Spec.Resources.Requests.Storage(); size.String() != "3Gi" || *claim.Spec.StorageClassName != "fast" ||
		from.Kind != "VolumeSnapshot" || from.Name != "survival-1-world" || claim.Labels[wellknown.ServerLabel] != "" {
		t.Errorf("its disk is %+v", claim)
	}
	if _, err := c.fromBackup(t.Context(), options, o.backup, "undo"); err != nil {
		t.Errorf("the disk that it made before isn't used: %v", err)
	}
	another := options
	another.Owner.UID = "another"
	if _, err := c.fromBackup(t.Context(), another, o.backup, "undo"); !strings.Contains(lackOf(err), "restore-undo-world that is of something else") {
		t.Errorf("of somebody else's disk it says %v", err)
	}
	if err := c.tidy(t.Context(), "games", "restore-undo", "somebody else", []string{"world"}); err != nil || c.Live.Get(t.Context(), key, claim) != nil {
		t.Errorf("somebody else's disk goes (%v)", err)
	}
	if err := c.tidy(t.Context(), "games", "restore-undo", r.UID, []string{"world"}); err != nil || !apierrors.IsNotFound(c.Live.Get(t.Context(), key, claim)) {
		t.Errorf("the disk stays (%v)", err)
	}
	going := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: key.Name, OwnerReferences: []metav1.OwnerReference{options.Owner}, Finalizers: []string{"kubernetes.io/pvc-protection"},
	}}
	if err := errors.Join(c.Client.Create(t.Context(), going), c.Client.Delete(t.Context(), going)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.fromBackup(t.Context(), options, o.backup, "undo"); !apierrors.IsConflict(err) {
		t.Errorf("of a disk that is being deleted it says %v", err)
	}
	o.backup.Name = "survival-2"
	if _, err := c.fromBackup(t.Context(), options, o.backup, "undo"); !strings.Contains(lackOf(err), "no VolumeSnapshot survival-2-world") {
		t.Errorf("of a snapshot that is gone it says %v", err)
	}
}

// The disks of a place are known while no Server has it, and those of a Fleet's Server while it exists.
func TestWhoseDisksAreFound(t *testing.T) {
	storage := []v1alpha1.StorageSpec{{Name: "world"}, {Name: "logs"}}
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival"}}
	gt.Spec.Template.Spec.Storage = storage
	alone := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "creative"}, Spec: v1alpha1.ServerSpec{Storage: storage}}
	none := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}}
	f := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "duel", UID: "fleet"}}
	ofFleet := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "duel-1", Labels: map[string]string{wellknown.PlaceLabel: "1", wellknown.FleetLabel: "duel"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(f, v1alpha1.GroupVersion.WithKind("Fleet"))},
	}, Spec: v1alpha1.ServerSpec{Storage: storage}}
	c := clusterWith(t, gt, alone, none, ofFleet)
	for name, owner := range map[string]string{
		"survival-0": "GameType", "creative": "Server", "duel-1": "Fleet", "lobby": "", "nobody": "", "duel-0": "", "survival": "",
	} {
		set, _, err := find(t.Context(), c.Client, types.NamespacedName{Namespace: "games", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if got := set != nil; got != (owner != "") || got && set.Owner.Kind != owner {
			t.Errorf("the disks of %s are %+v, want a %s's", name, set, owner)
		}
		if set == nil {
			continue
		}
		if some := only(set, []string{"world", "other"}); len(some.Spec.Storage) != 1 || len(set.Spec.Storage) != 2 {
			t.Errorf("of the disks of %s %v are left, of %v", name, some.Spec.Storage, set.Spec.Storage)
		}
	}
}
