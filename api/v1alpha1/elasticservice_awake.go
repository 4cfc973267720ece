package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KeptAwake is what keeps a service awake whether it is used or not.
type KeptAwake struct {
	// until is until when the service doesn't sleep by itself. Not set where another
	// ElasticService keeps it awake, which does so until it is asleep.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// by is what keeps it awake: a window such as awake[0], the annotation, or another
	// ElasticService.
	By string `json:"by"`
}
