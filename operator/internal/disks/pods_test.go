package disks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Once the Server is gone, its disks are mounted as before.
func TestAPodOfWhatWasTakenIsTheSame(t *testing.T) {
	template := &corev1.PodTemplate{}
	template.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Image: "dormouse"}}
	for name, game := range map[string]corev1.PodSpec{
		"nothing is said": {Containers: []corev1.Container{{Name: "game"}}},
		"the Pod says it": {
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: new(int64(1)), RunAsGroup: new(int64(2)), FSGroup: new(int64(3)), SupplementalGroups: []int64{4},
				SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"}, SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict),
			},
			NodeSelector: map[string]string{"games": "yes"}, Tolerations: []corev1.Toleration{{Key: "games"}},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "games"}},
			Affinity: &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}},
				PodAffinity:  &corev1.PodAffinity{},
			},
		},
		"the game says it": {Containers: []corev1.Container{{Name: "beside"}, {Name: "game", SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(0))}}}},
	} {
		t.Run(name, func(t *testing.T) {
			set := &Set{Namespace: "games", Name: "survival", Spec: &v1alpha1.ServerSpec{GameContainer: "game", Storage: []v1alpha1.StorageSpec{{Name: "world"}}}}
			set.Spec.Template.Spec = game
			// As the API server keeps it.
			text, err := json.Marshal(Taken(set.Spec))
			if err != nil {
				t.Fatal(err)
			}
			left := &Set{Namespace: "games", Name: "survival", Spec: &v1alpha1.ServerSpec{Storage: []v1alpha1.StorageSpec{{Name: "world"}}}}
			if err := json.Unmarshal(text, &left.Spec.Template.Spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Beside(set, template, "settle"), Beside(left, template, "settle")); diff != "" {
				t.Errorf("it differs (-before +after):\n%s", diff)
			}
		})
	}
}

// Its image is the administrator's, and may be in a registry of the game's owner.
func TestAPodBesideTheGamePullsItsImageWithTheSecretsOfBoth(t *testing.T) {
	secrets := func(names ...string) (all []corev1.LocalObjectReference) {
		for _, name := range names {
			all = append(all, corev1.LocalObjectReference{Name: name})
		}
		return all
	}
	for name, c := range map[string]struct{ sidecar, game, want []corev1.LocalObjectReference }{
		"none":                 {nil, nil, nil},
		"the PodTemplate's":    {secrets("mirror"), nil, secrets("mirror")},
		"the game's":           {nil, secrets("games"), secrets("games")},
		"both":                 {secrets("mirror"), secrets("games", "mirror"), secrets("mirror", "games")},
		"the same one of both": {secrets("mirror"), secrets("mirror"), secrets("mirror")},
	} {
		template, set := &corev1.PodTemplate{}, &Set{Namespace: "games", Name: "survival", Spec: &v1alpha1.ServerSpec{}}
		template.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Image: "dormouse"}}
		template.Template.Spec.ImagePullSecrets, set.Spec.Template.Spec.ImagePullSecrets = c.sidecar, c.game
		if diff := cmp.Diff(c.want, Beside(set, template).ImagePullSecrets); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The name of a volume may have 63 characters, as that of a disk. A shorter one stays as it is: it is in Pods.
func TestADiskOfAnyNameHasAVolume(t *testing.T) {
	template := &corev1.PodTemplate{}
	template.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Image: "dormouse"}}
	long := strings.Repeat("a", 46) + "-" + strings.Repeat("b", 15)
	set := &Set{Name: "survival", Spec: &v1alpha1.ServerSpec{Storage: []v1alpha1.StorageSpec{
		{Name: "world"}, {Name: strings.Repeat("w", 58)}, {Name: strings.Repeat("w", 59)}, {Name: long + "1"}, {Name: long + "2"},
	}}}
	pod := Beside(set, template)
	names := map[string]bool{}
	for i, volume := range pod.Volumes {
		disk, mount := set.Spec.Storage[i].Name, pod.Containers[0].VolumeMounts[i]
		if wrong := validation.IsDNS1123Label(volume.Name); len(wrong) > 0 {
			t.Errorf("the volume of disk %s is named %s: %v", disk, volume.Name, wrong)
		}
		if mount.Name != volume.Name || mount.MountPath != "/disks/"+disk || volume.PersistentVolumeClaim.ClaimName != "survival-"+disk {
			t.Errorf("disk %s is mounted as %+v of %+v", disk, mount, volume.PersistentVolumeClaim)
		}
		if len(disk) <= 58 && volume.Name != "disk-"+disk {
			t.Errorf("the volume of disk %s is named %s", disk, volume.Name)
		}
		names[volume.Name] = true
	}
	if len(names) != len(set.Spec.Storage) {
		t.Errorf("%d disks have the volumes %v", len(set.Spec.Storage), names)
	}
}
