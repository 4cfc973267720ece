package disks

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

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
