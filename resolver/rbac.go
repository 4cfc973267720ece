package main

// The resolver's permissions: it watches the services that it stands in for, where their pods
// are, and Servers, and changes nothing.
//
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices;servers,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
