package fleet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// The disks of a GameType's Fleet are the GameType's.
func TestDisksOutliveAFleetOfNobodysThatSaysSo(t *testing.T) {
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival", UID: "gt"}}
	for name, owners := range map[string][]metav1.OwnerReference{
		"its own":      nil,
		"a GameType's": {*metav1.NewControllerRef(gt, v1alpha1.GroupVersion.WithKind("GameType"))},
	} {
		f := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "f", Generation: 2, OwnerReferences: owners}}
		f.Spec.Template.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world", OnDelete: v1alpha1.StorageRetain}}
		labels := disks.Labels("lobby-0", map[string]string{wellknown.FleetLabel: f.Name})
		claim := disks.BuildClaim("games", "lobby-0", labels, nil, &f.Spec.Template.Spec.Storage[0])
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: f.Name, UID: f.UID}}
		c := fake.NewClientBuilder().WithObjects(claim).Build()
		if err := (&Reconciler{Client: c, Live: c}).keepDisks(t.Context(), f, &state{}); err != nil {
			t.Fatal(err)
		}
		is := &corev1.PersistentVolumeClaim{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), is); err != nil || len(is.OwnerReferences) != len(owners) {
			t.Errorf("the disk of one that is %s has the owners %v (%v), want %d", name, is.OwnerReferences, err, len(owners))
		}
	}
}
