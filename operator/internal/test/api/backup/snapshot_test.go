package backup_test

import (
	"context"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

// passOf makes a pass of one Backup, which may be gone.
func (w *world) passOf(name string) {
	w.t.Helper()
	if _, err := w.reconciler.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: w.key(name)}); err != nil {
		w.t.Fatal(err)
	}
}

// installSnapshots gives the API server as much of the snapshot API as matters.
func installSnapshots(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(fixture.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "volumesnapshots.snapshot.storage.k8s.io", Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, a test's"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "snapshot.storage.k8s.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "volumesnapshots", Singular: "volumesnapshot", Kind: "VolumeSnapshot", ListKind: "VolumeSnapshotList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
	if err := c.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), crd) })
}

func snapshotKind() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshot"})
	return u
}

func (w *world) snapshot(name string) *unstructured.Unstructured {
	w.t.Helper()
	u := snapshotKind()
	fixture.Eventually(w.t, promptly, "VolumeSnapshot "+name, func(ctx context.Context) error { return w.Admin.Get(ctx, w.key(name), u) })
	return u
}

func (w *world) snapshotSays(name string, status map[string]any) {
	w.t.Helper()
	u := w.snapshot(name)
	u.Object["status"] = status
	if err := w.Admin.Status().Update(w.t.Context(), u); err != nil {
		w.t.Fatal(err)
	}
}

func TestASnapshotIsTakenWhereTheClusterCan(t *testing.T) {
	w := newWorld(t)
	w.setup(func(s *v1alpha1.BackupSpec) {
		s.OnSleep, s.To = new(false), v1alpha1.BackupTarget{VolumeSnapshot: &v1alpha1.BackupSnapshot{ClassName: new("fast")}}
	})
	w.byHand("b")
	w.pass()
	w.want("b", v1alpha1.CopyPending, reasons.NoSnapshots)
	if !w.couldStart() {
		t.Error("a Backup that waits holds the disks")
	}

	installSnapshots(t)
	fixture.Eventually(t, promptly, "the API is there", func(ctx context.Context) error {
		_, err := w.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: w.key("b")})
		if err == nil {
			err = fixture.WantEqual("phase", w.get("b").Status.Phase, v1alpha1.CopyRunning) //nolint:contextcheck // it has the test's
		}
		return err
	})
	w.pass()
	u := w.snapshot("b-world")
	class, _, _ := unstructured.NestedString(u.Object, "spec", "volumeSnapshotClassName")
	claim, _, _ := unstructured.NestedString(u.Object, "spec", "source", "persistentVolumeClaimName")
	if class != "fast" || claim != "survival-0-world" || !metav1.IsControlledBy(u, w.get("b")) {
		t.Errorf("it is %+v", u.Object)
	}
	if w.couldStart() {
		t.Error("the game could start before the snapshot has its moment")
	}
	// Somebody waits for the game now, and the moment comes first.
	w.snapshotSays("b-world", map[string]any{"creationTime": "2026-11-26T12:00:00Z", "readyToUse": false})
	w.pass()
	w.want("b", v1alpha1.CopyRunning, reasons.SnapshotTaken)
	if w.released != 1 || !w.wake() {
		t.Error("the game can't start though the snapshot has its moment")
	}
	w.snapshotSays("b-world", map[string]any{"creationTime": "2026-11-26T12:00:00Z", "readyToUse": true, "restoreSize": "2Gi"})
	w.pass()
	if b := w.want("b", v1alpha1.CopyComplete, reasons.Copied); b.Status.Size.String() != "2Gi" || !b.Status.AtRest {
		t.Errorf("its status is %+v", b.Status)
	}
	w.sleep()
	w.Clock.Pass(2 * time.Minute) // the game that was kept from starting went first

	// One that doesn't get ready.
	w.byHand("c")
	w.pass()
	w.snapshotSays("c-world", map[string]any{"error": map[string]any{"message": "no such class"}})
	w.pass()
	if words := w.want("c", v1alpha1.CopyRunning, reasons.Copying).Status.Conditions[0].Message; words != "VolumeSnapshot c-world: no such class" {
		t.Errorf("it says %q", words)
	}
	w.after(2 * time.Hour)
	w.want("c", v1alpha1.CopyFailed, reasons.CopyFailed)
	if !w.couldStart() {
		t.Error("the disks are held still")
	}

	if err := w.Admin.Get(t.Context(), w.key("c-world"), snapshotKind()); err == nil {
		t.Error("a snapshot that never got ready stays")
	}

	w.remove("b")
	w.remove("c")
	w.pass()
	w.none()
	if err := w.Admin.Get(t.Context(), w.key("b-world"), snapshotKind()); err == nil {
		t.Error("the snapshot of a Backup that is gone stays")
	}

	// One whose annotation says so.
	w.byHand("d")
	w.pass()
	w.snapshotSays("d-world", map[string]any{"creationTime": "2026-11-26T12:00:00Z", "readyToUse": true})
	w.pass()
	d := w.want("d", v1alpha1.CopyComplete, reasons.Copied)
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, wellknown.KeepArchiveAnnotation, "true")
	if err := w.Admin.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.remove("d")
	w.pass()
	w.none()
	if u := w.snapshot("d-world"); !u.GetDeletionTimestamp().IsZero() || len(u.GetOwnerReferences()) != 0 {
		t.Errorf("the snapshot goes with its Backup: %+v", u.Object["metadata"])
	}
}
