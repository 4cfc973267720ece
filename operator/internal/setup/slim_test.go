package setup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A GameType takes its own annotations off its Service, which it must see for that;
// nobody reads those of the others.
func TestWhatAFrontsOwnerSaysIsInTheCache(t *testing.T) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}
	for _, name := range v1alpha1.FrontAnnotations {
		s.Annotations[name] = "c"
	}
	if _, err := slim(s); err != nil {
		t.Fatal(err)
	}
	if len(s.Annotations) != len(v1alpha1.FrontAnnotations) || s.Annotations[v1alpha1.TrustedCIDRsAnnotation] != "c" {
		t.Errorf("it has %v", s.Annotations)
	}
}

func TestWhatAGameTypesOwnerAsksForIsInTheCache(t *testing.T) {
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"a": "b", v1alpha1.UndoToAnnotation: "c", v1alpha1.RestartedAtAnnotation: "d",
	}}}
	if _, err := slim(gt); err != nil {
		t.Fatal(err)
	}
	if len(gt.Annotations) != 2 || gt.Annotations[v1alpha1.UndoToAnnotation] != "c" || gt.Annotations[v1alpha1.RestartedAtAnnotation] != "d" {
		t.Errorf("it has %v", gt.Annotations)
	}
}

func TestOnlyAGameTypesServicesKeepTheirAnnotationsInTheCache(t *testing.T) {
	for label, want := range map[string]int{v1alpha1.GameTypeLabel: 1, "app": 0} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: "duel"}, Annotations: map[string]string{"a": "b"}}}
		if _, err := slim(s); err != nil {
			t.Fatal(err)
		}
		if len(s.Annotations) != want {
			t.Errorf("one labelled %s has the annotations %v", label, s.Annotations)
		}
	}
}
