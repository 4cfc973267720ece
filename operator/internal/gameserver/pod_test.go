package gameserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// The administrator says once where the sidecar's image comes from, and with which Secrets.
func TestAPodPullsWithTheSecretsOfThePodTemplate(t *testing.T) {
	t.Parallel()
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "dormouse-system", Name: "dormouse-sidecar"}}
	template.Template.Spec.Containers = []corev1.Container{{Name: "dormouse-sidecar", Image: "mirror.example/sidecar:1"}}
	template.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "mirror"}}
	s := full()
	s.Spec.Storage = nil
	s.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "games"}}
	world := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(template).Build()
	r := &Reconciler{Client: world, SidecarTemplate: client.ObjectKeyFromObject(template)}
	r.Init()
	if refused, err := r.createPod(t.Context(), s, []int32{7000, 7001, 0}); refused != nil || err != nil {
		t.Fatal(refused, err)
	}
	pod := &corev1.Pod{}
	if err := world.Get(t.Context(), client.ObjectKeyFromObject(s), pod); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "games"}, {Name: "mirror"}}, pod.Spec.ImagePullSecrets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
