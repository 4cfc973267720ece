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

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "dormouse.dev", Version: "v1alpha1"}

// AddToScheme makes the kinds of this package known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Allocation{}, &AllocationList{},
		&Backup{}, &BackupList{},
		&ElasticService{}, &ElasticServiceList{},
		&Fleet{}, &FleetList{},
		&GameAutoscaler{}, &GameAutoscalerList{},
		&GameType{}, &GameTypeList{},
		&Restore{}, &RestoreList{},
		&Server{}, &ServerList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
