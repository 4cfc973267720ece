package defaults

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestASpecSaysWhatItMeans(t *testing.T) {
	t.Parallel()
	said := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, c := range map[string]struct{ is, want v1alpha1.ServerSpec }{
		"nothing": {
			v1alpha1.ServerSpec{Ports: []v1alpha1.ServerPort{{Name: "game"}}},
			v1alpha1.ServerSpec{
				Readiness: "Auto", Running: new(true), Ports: []v1alpha1.ServerPort{{Name: "game", Expose: "None"}},
				Health:   v1alpha1.HealthSpec{InitialDelay: said(30 * time.Second), Period: said(5 * time.Second), FailureThreshold: 3},
				Deletion: v1alpha1.DeletionSpec{Unreported: "Allowed", Timeout: said(0)},
			},
		},
		"a part": {
			v1alpha1.ServerSpec{Health: v1alpha1.HealthSpec{Disabled: true}, Deletion: v1alpha1.DeletionSpec{Force: true}},
			v1alpha1.ServerSpec{
				Readiness: "Auto", Running: new(true),
				Health:   v1alpha1.HealthSpec{InitialDelay: said(30 * time.Second), Period: said(5 * time.Second), FailureThreshold: 3, Disabled: true},
				Deletion: v1alpha1.DeletionSpec{Unreported: "Allowed", Timeout: said(0), Force: true},
			},
		},
		"all": {everything(), everything()},
	} {
		before := c.is.DeepCopy()
		if diff := cmp.Diff(c.want, Filled(c.is)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(*before, c.is); diff != "" {
			t.Errorf("%s: the spec itself was changed (-before +after):\n%s", name, diff)
		}
	}
}

// everything says all of it, and otherwise.
func everything() v1alpha1.ServerSpec {
	return v1alpha1.ServerSpec{
		Readiness: "SDK", Running: new(false), Ports: []v1alpha1.ServerPort{{Name: "game", Expose: "HostPort"}},
		Health:   v1alpha1.HealthSpec{InitialDelay: &metav1.Duration{}, Period: &metav1.Duration{Duration: time.Second}, FailureThreshold: 1},
		Deletion: v1alpha1.DeletionSpec{Unreported: "Denied", Timeout: &metav1.Duration{Duration: time.Hour}},
	}
}
