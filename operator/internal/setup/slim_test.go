package setup

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// A GameType takes its own annotations off its Service, which it must see for that;
// nobody reads those of the others.
func TestWhatAFrontsOwnerSaysIsInTheCache(t *testing.T) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}
	for _, name := range wellknown.ServiceAnnotations {
		s.Annotations[name] = "c"
	}
	if _, err := slimService(s); err != nil {
		t.Fatal(err)
	}
	if len(s.Annotations) != len(wellknown.ServiceAnnotations) || s.Annotations[wellknown.TrustedCIDRsAnnotation] != "c" {
		t.Errorf("it has %v", s.Annotations)
	}
}

func TestWhatAGameTypesOwnerAsksForIsInTheCache(t *testing.T) {
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"a": "b", wellknown.UndoToAnnotation: "c", wellknown.RestartedAtAnnotation: "d", wellknown.KeepAwakeUntilAnnotation: "e",
	}}}
	if _, err := slimService(gt); err != nil {
		t.Fatal(err)
	}
	if len(gt.Annotations) != 3 || gt.Annotations[wellknown.UndoToAnnotation] != "c" || gt.Annotations[wellknown.RestartedAtAnnotation] != "d" ||
		gt.Annotations[wellknown.KeepAwakeUntilAnnotation] != "e" {
		t.Errorf("it has %v", gt.Annotations)
	}
}

func TestOnlyServicesThatTheOperatorAppliesKeepTheirAnnotationsInTheCache(t *testing.T) {
	for label, want := range map[string]int{wellknown.GameTypeLabel: 1, wellknown.FilesLabel: 1, "app": 0} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: "duel"}, Annotations: map[string]string{"a": "b"}}}
		if _, err := slimService(s); err != nil {
			t.Fatal(err)
		}
		if len(s.Annotations) != want {
			t.Errorf("one labelled %s has the annotations %v", label, s.Annotations)
		}
	}
}

// Webhooks are told the short annotations of what is scaled; what kubectl apply keeps there, and what
// is long, isn't kept. What controllers read is kept all the same.
func TestWhatIsScaledKeepsItsShortAnnotationsInTheCache(t *testing.T) {
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"team": "blue", "long": strings.Repeat("x", maxAnnotations), corev1.LastAppliedConfigAnnotation: "{}",
		wellknown.UndoToAnnotation: strings.Repeat("y", maxAnnotations),
	}}}
	if _, err := slimScaled(gt); err != nil {
		t.Fatal(err)
	}
	if len(gt.Annotations) != 2 || gt.Annotations["team"] != "blue" || len(gt.Annotations[wellknown.UndoToAnnotation]) != maxAnnotations {
		t.Errorf("it has %d annotations: %.200v", len(gt.Annotations), gt.Annotations)
	}
}

func TestAPodKeepsItsAddressesOnceInTheCache(t *testing.T) {
	pod := decoded(t, &corev1.Pod{}, podText, 1)
	want := pod.DeepCopy().Status.PodIPs
	if _, err := slimPod(pod); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, pod.Status.PodIPs); diff != "" || pod.Status.PodIP != want[0].IP {
		t.Errorf("its addresses (-want +got):\n%s and %s", diff, pod.Status.PodIP)
	}
	if unsafe.StringData(pod.Status.PodIP) != unsafe.StringData(pod.Status.PodIPs[0].IP) {
		t.Error("each has a text of its own")
	}
	if pod.Status.HostIPs != nil || pod.Status.StartTime != nil {
		t.Error("what nobody reads is kept")
	}
}
