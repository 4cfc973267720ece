package fleet

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/wellknown"
)

func TestDisksOfEarlierServersAreFound(t *testing.T) {
	claim := func(server string, labels ...string) corev1.PersistentVolumeClaim {
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: server + "-data", Labels: map[string]string{wellknown.ServerLabel: server}}}
		for _, label := range labels {
			c.Labels[label] = "0"
		}
		return c
	}
	got := leftDisks("world", []corev1.PersistentVolumeClaim{
		claim("world-xk2vb"), claim("world-665b6647b-abcde"), claim("world-665b6647b-alive"), claim("world-0", wellknown.PlaceLabel),
		claim("worlds-xk2vb"), claim("other-xk2vb"), claim("world"),
	}, func(server string) bool { return server == "world-665b6647b-alive" })
	if want := []string{"world-665b6647b-abcde-data", "world-xk2vb-data"}; !slices.Equal(got, want) {
		t.Errorf("the disks left are %v, want %v", got, want)
	}
}
