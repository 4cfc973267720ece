package elasticservice_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// Kubernetes would delete the world of a game with the pods. What sleeps already is woken all the same.
func TestAStatefulSetThatWouldLoseItsDisksStaysAwake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	labels := map[string]string{"app": "arena"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "arena"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "none"}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "world"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		},
	}
	w.create(set)
	whenScaled := func(policy appsv1.PersistentVolumeClaimRetentionPolicyType) {
		w.edit(set, func() { set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = policy })
	}
	w.service("arena")
	w.elastic("arena", byPlayers(1), sleepAfter(time.Second), func(es *v1alpha1.ElasticService) { es.Spec.ScaleTargetRef.Kind = "StatefulSet" })
	server := newServer()
	countPlayers(t, server).is(0)
	w.servers("arena", server)
	losesDisks := hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.TargetLosesDisks)
	w.want("arena", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe), losesDisks)
	w.stays("arena", 4*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))

	whenScaled(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	w.want("arena", afterSettling, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.servers("arena")
	whenScaled(appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
	w.want("arena", promptly, losesDisks)
	w.wake(0, resolverToken(t), "arena")
	if err := w.read(t.Context(), "arena", set); err != nil || ptr.Deref(set.Spec.Replicas, 0) != 1 {
		t.Errorf("once it was woken it wants %d replicas: %v", ptr.Deref(set.Spec.Replicas, 0), err)
	}
}
