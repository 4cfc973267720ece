package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FilesSpec is how people reach the files on a Server's disks over SFTP, whether the game runs or
// not. A Service and an ElasticService named <server>-files are made for each Server, and a
// Deployment that sleeps at zero until somebody connects. With one disk a user's root is that disk;
// with several it has a directory for each, named as the disk.
type FilesSpec struct {
	// secret is the name of a Secret of the namespace with the host key and the users. Its key
	// host is the server's private key in PEM. Each user has a key <user>.password with a bcrypt
	// hash, <user>.keys with lines as in authorized_keys, or both. Dormouse never reads it: the pod
	// that serves the files mounts it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="secret must be the name of a Secret: lower case letters, digits, '-' and '.'"
	Secret string `json:"secret"`

	// service is how clients reach port 22 of the Service.
	// +optional
	// +kubebuilder:default={}
	Service FilesServiceSpec `json:"service,omitempty"`

	// allowCIDRs are the networks whose clients may connect, asleep and awake, such as
	// 203.0.113.0/24 or 2001:db8::/32. By default all may. It works only where clients'
	// addresses are known: with service.externalTrafficPolicy: Local, and inside the cluster.
	// Others appear with a node's address.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="allowCIDRs must be networks such as 203.0.113.0/24 or 2001:db8::/32"
	AllowCIDRs []string `json:"allowCIDRs,omitempty"`

	// quota bounds the sum of all files' sizes, for who writes over SFTP. By default the disk alone
	// does.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : size(self) <= 32 && isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",message="quota must be a quantity above 0 such as 10Gi or 500Mi"
	Quota *resource.Quantity `json:"quota,omitempty"`

	// idleTimeout ends a session that moves nothing; from 1m to 24h. A minute after the last
	// session the pod goes.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="idleTimeout must be a duration from 1m to 24h such as 5m"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// runAsUser and runAsGroup are the user and the group of the pod, and so of new files: by
	// default those of the game in its template, and the sidecar's where that says none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`
	// runAsGroup is the group.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`
}

// FilesServiceSpec is how clients of SFTP reach a Server's files.
//
// +kubebuilder:validation:XValidation:rule="!has(self.externalTrafficPolicy) || (has(self.type) && self.type != 'ClusterIP')",message="externalTrafficPolicy needs type: NodePort or LoadBalancer"
type FilesServiceSpec struct {
	// type is ClusterIP, the default, NodePort or LoadBalancer.
	// +optional
	// +kubebuilder:default=ClusterIP
	Type GameServiceType `json:"type,omitempty"`

	// annotations are the Service's, for load balancers.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`

	// externalTrafficPolicy is Cluster, the default, or Local, with which clients' addresses are
	// known, and which leads only to nodes that have a resolver.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
}
