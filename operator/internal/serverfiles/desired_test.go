package serverfiles

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/operator/internal/disks"
)

func TestAnObjectIsAsDesiredWhateverElseItHas(t *testing.T) {
	desired := func() *corev1.Service {
		s := buildService(disks.OfServer(newServer()))
		s.Annotations = map[string]string{"a": "b"}
		mark(s, "1")
		return s
	}
	for name, c := range map[string]struct {
		change func(*corev1.Service)
		want   bool
	}{
		"the same":              {func(*corev1.Service) {}, true},
		"a default":             {func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Ports[0].NodePort = "10.0.0.1", 30000 }, true},
		"another tool's label":  {func(s *corev1.Service) { s.Labels["tool"] = "x" }, true},
		"a label is gone":       {func(s *corev1.Service) { s.Labels = nil }, false},
		"an annotation changed": {func(s *corev1.Service) { s.Annotations["a"] = "c" }, false},
		"of another time":       {func(s *corev1.Service) { mark(s, "2") }, false},
		"another port":          {func(s *corev1.Service) { s.Spec.Ports[0].Port = 23 }, false},
		"one more port":         {func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 1}) }, false},
		"no port":               {func(s *corev1.Service) { s.Spec.Ports = nil }, false},
		"another type":          {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }, false},
	} {
		have := desired()
		c.change(have)
		if got := asDesired(have, desired()); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// What is built is as desired once it is stored and read again.
func TestWhatIsBuiltIsAsDesired(t *testing.T) {
	all := build(disks.OfServer(newServer()), newSidecar())
	for _, b := range all {
		mark(b.desired, "1")
		stored, ok := b.desired.DeepCopyObject().(client.Object)
		if !ok || !asDesired(stored, b.desired) {
			t.Errorf("%s isn't", b.kind)
		}
	}
}
