package gametype

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// An operator of an earlier version has written that it saw the change to Retain, and left the disk its owner.
func TestADeletedGameTypeLooksOnceMoreWhichDisksStay(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "survival", UID: "gt", Generation: 3, DeletionTimestamp: &now, Finalizers: []string{wellknown.GameTypeFinalizer},
	}}
	gt.Status.ObservedGeneration = 3
	gt.Spec.Template.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world", OnDelete: v1alpha1.StorageRetain}}
	set := disks.OfPlace(gt, 0)
	claim := disks.BuildClaim(set.Namespace, set.Name, set.Labels, nil, &gt.Spec.Template.Spec.Storage[0])
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: set.Owner.APIVersion, Kind: set.Owner.Kind, Name: gt.Name, UID: gt.UID}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(gt, claim).
		WithIndex(&v1alpha1.Fleet{}, IndexOwner, func(client.Object) []string { return nil }).Build()
	r := &Reconciler{Client: c, Live: c}
	r.Init()
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(gt)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(gt), gt); !apierrors.IsNotFound(err) {
		t.Errorf("the GameType is there still: %v", err)
	}
	is := &corev1.PersistentVolumeClaim{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), is); err != nil || len(is.OwnerReferences) != 0 {
		t.Errorf("the disk has the owners %v (%v)", is.OwnerReferences, err)
	}
}
