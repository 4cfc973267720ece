package disks

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestWhoMayHaveADisk(t *testing.T) {
	for want, modes := range map[Sharing][]corev1.PersistentVolumeAccessMode{
		SharedByNode:   {corev1.ReadWriteOnce},
		SharedByAll:    {corev1.ReadWriteOnce, corev1.ReadWriteMany},
		SharedByNobody: {corev1.ReadWriteOncePod},
	} {
		if got := SharingOf(modes); got != want {
			t.Errorf("%v: %v, want %v", modes, got, want)
		}
	}
}

// Only where all disks may be anywhere may their Pods.
func TestWhereAPodBesideTheGameMayBe(t *testing.T) {
	claim := func(disk string, mode corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-" + disk},
			Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{mode}},
		}
	}
	template := &corev1.PodTemplate{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}}
	set := &Set{Namespace: "games", Name: "survival", Spec: &v1alpha1.ServerSpec{Storage: []v1alpha1.StorageSpec{{Name: "world"}, {Name: "mods"}}}}
	for name, c := range map[string]struct {
		claims   []*corev1.PersistentVolumeClaim
		anywhere bool
	}{
		"each is all nodes'":             {[]*corev1.PersistentVolumeClaim{claim("world", corev1.ReadWriteMany), claim("mods", corev1.ReadWriteMany)}, true},
		"one is one node's":              {[]*corev1.PersistentVolumeClaim{claim("world", corev1.ReadWriteMany), claim("mods", corev1.ReadWriteOnce)}, false},
		"one isn't there yet":            {[]*corev1.PersistentVolumeClaim{claim("world", corev1.ReadWriteMany)}, false},
		"one is a Pod's, one all nodes'": {[]*corev1.PersistentVolumeClaim{claim("world", corev1.ReadWriteOncePod), claim("mods", corev1.ReadWriteMany)}, false},
	} {
		live := fake.NewClientBuilder()
		for _, is := range c.claims {
			live.WithObjects(is)
		}
		placed, err := Placed(t.Context(), live.Build(), set)
		if err != nil {
			t.Fatal(err)
		}
		if must := Beside(placed, template).Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution; (len(must) == 0) != c.anywhere {
			t.Errorf("%s: its Pod must be with %v", name, must)
		}
	}
}
