package main

// What the resolver may do: it learns which services it stands in for and where
// their pods are, and changes nothing.
//
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices;servers,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
