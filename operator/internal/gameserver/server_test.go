package gameserver

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/gameserver/podbuilder"
)

// full is a Server with ports, a disk, and a container beside its game.
func full() *v1alpha1.Server {
	return &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "server", Labels: map[string]string{wellknown.FleetLabel: "lobbies"}},
		Spec: v1alpha1.ServerSpec{
			GameContainer: "game",
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "logs"}, {Name: "game", Image: "game:1"}},
			}},
			Ports: []v1alpha1.ServerPort{
				{Name: "game", Protocol: v1alpha1.ServerProtocolTCPUDP, Expose: v1alpha1.ExposePassthrough},
				{Name: "query-of-a-game", ContainerPort: 7778, Protocol: v1alpha1.ServerProtocolTCPUDP, Expose: v1alpha1.ExposeHostPort},
				{Name: "inner", ContainerPort: 80},
			},
			Storage: []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world", Size: resource.MustParse("1Gi")}},
		},
	}
}

var sidecar = podbuilder.Sidecar{OperatorURL: "http://operator:8080", Container: corev1.Container{Name: "any", Image: "sidecar:1"}}
