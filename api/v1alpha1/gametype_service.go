package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// GameNodePort is the node port of a port.
type GameNodePort struct {
	// name is the port's name in the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	Name string `json:"name"`
	// nodePort is its number on each node, in the range that the cluster has for that.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort"`
}

// GameServiceSpec is how players reach a game.
//
// +kubebuilder:validation:XValidation:rule="(!has(self.loadBalancerClass) && !has(self.loadBalancerSourceRanges)) || (has(self.type) && self.type == 'LoadBalancer')",message="loadBalancerClass and loadBalancerSourceRanges need type: LoadBalancer"
// +kubebuilder:validation:XValidation:rule="(!has(self.externalTrafficPolicy) && !has(self.nodePorts)) || (has(self.type) && self.type != 'ClusterIP')",message="externalTrafficPolicy and nodePorts need type: NodePort or LoadBalancer"
type GameServiceSpec struct {
	// type is the Service's type: ClusterIP, NodePort or LoadBalancer.
	// +optional
	// +kubebuilder:default=ClusterIP
	Type GameServiceType `json:"type,omitempty"`

	// annotations are put on the Service: settings of the cluster's load balancers for example.
	// One that is taken out here is taken off the Service.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// ipFamilyPolicy is the Service's: SingleStack, PreferDualStack or RequireDualStack.
	// Absent: what the API server chooses, which is SingleStack, or what the Service has.
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`

	// labels are put on the Service. One that is taken out here is taken off the Service.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// loadBalancerClass is whose load balancer it is, as in a Service; absent: the cluster's
	// default. It can't be changed while the Service is of type LoadBalancer.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`

	// loadBalancerSourceRanges are the networks from which players may come to the load
	// balancer, such as 203.0.113.0/24, where it can tell them; absent: from everywhere.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(r, isCIDR(r))",message="loadBalancerSourceRanges must be networks such as 203.0.113.0/24"
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`

	// externalTrafficPolicy is Cluster, or Local for players' own addresses at the game, which
	// needs sleep.handoff: Never where the game sleeps. Absent: Cluster, or what the Service has.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`

	// sessionAffinity is None, or ClientIP for new connections of one address to go where its
	// last one went. Absent: None, or what the Service has.
	// +optional
	// +kubebuilder:validation:Enum=None;ClientIP
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`

	// nodePorts are the node ports of ports in the template, with type NodePort or LoadBalancer.
	// Others are picked by the cluster, once.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	NodePorts []GameNodePort `json:"nodePorts,omitempty"`

	// skipFull keeps new players from a Server that has as many as its capacity, for as long as
	// another one has room.
	// +optional
	SkipFull bool `json:"skipFull,omitempty"`
}

// GameServiceType is the type of a GameType's Service.
// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
type GameServiceType string

const (
	// GameServiceClusterIP is reached from inside the cluster.
	GameServiceClusterIP GameServiceType = "ClusterIP"
	// GameServiceNodePort is reached on a port of each node.
	GameServiceNodePort GameServiceType = "NodePort"
	// GameServiceLoadBalancer is reached on an address of its own.
	GameServiceLoadBalancer GameServiceType = "LoadBalancer"
)
