// Package v1alpha1 holds the kinds of the API group dormouse.dev and the names (labels,
// annotations, finalizers) that Dormouse's programs and its users share.
//
// It imports only apimachinery and Kubernetes' core types, so that a client can use it without
// taking in the rest of Dormouse.
//
// Durations are Go durations such as 90s, 10m or 1h30m; 0s means never in every field.
//
// +kubebuilder:object:generate=true
// +groupName=dormouse.dev
package v1alpha1
