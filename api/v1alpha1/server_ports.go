package v1alpha1

// Expose says how a game's port is reached from outside the cluster.
// +kubebuilder:validation:Enum=None;HostPort;Passthrough
type Expose string

const (
	// ExposeNone publishes nothing: players come through a Service.
	ExposeNone Expose = "None"
	// ExposeHostPort publishes the port on the node's address, under a number
	// that the operator picks or hostPort names.
	ExposeHostPort Expose = "HostPort"
	// ExposePassthrough is HostPort with the container's port being the same
	// number, which the game must listen on: it finds it in the environment
	// variable SERVER_PORT_<NAME> or through the SDK.
	ExposePassthrough Expose = "Passthrough"
)

// ServerProtocol is a port's transport protocol.
// +kubebuilder:validation:Enum=TCP;UDP;TCPUDP
type ServerProtocol string

const (
	// ServerProtocolTCP is TCP.
	ServerProtocolTCP ServerProtocol = "TCP"
	// ServerProtocolUDP is UDP.
	ServerProtocolUDP ServerProtocol = "UDP"
	// ServerProtocolTCPUDP is both on one number.
	ServerProtocolTCPUDP ServerProtocol = "TCPUDP"
)

// ServerPort is one of a game's ports.
// +kubebuilder:validation:XValidation:rule="(has(self.expose) && self.expose == 'Passthrough') || has(self.containerPort)",message="containerPort is needed, except with expose: Passthrough"
// +kubebuilder:validation:XValidation:rule="!(has(self.expose) && self.expose == 'Passthrough') || !has(self.containerPort)",message="containerPort can't be set with expose: Passthrough, which makes it the host port; remove it"
// +kubebuilder:validation:XValidation:rule="(!has(self.containerPort) || self.containerPort < 9357 || self.containerPort > 9359) && (!has(self.hostPort) || self.hostPort < 9357 || self.hostPort > 9359)",message="ports 9357 to 9359 are the sidecar's; choose another"
// +kubebuilder:validation:XValidation:rule="!has(self.hostPort) || (has(self.expose) && self.expose != 'None')",message="hostPort needs expose: HostPort or Passthrough"
type ServerPort struct {
	// name tells the ports apart.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="name must be lower case letters, digits and '-', starting with a letter"
	Name string `json:"name"`

	// containerPort is the number on which the game listens.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ContainerPort int32 `json:"containerPort,omitempty"`

	// protocol is TCP, UDP, or TCPUDP for both on one number.
	// +optional
	// +kubebuilder:default=TCP
	Protocol ServerProtocol `json:"protocol,omitempty"`

	// expose says how the port is reached from outside the cluster.
	// +optional
	// +kubebuilder:default=None
	Expose Expose `json:"expose,omitempty"`

	// hostPort is the number on the node. If it is absent the operator picks one
	// from its range (7000 to 8000 by default), and a Server whose number is
	// taken on every node waits for one. Over UDP it picks none that is a UDP port
	// of an ElasticService's Service while there are others, and neither should you: when a Pod with that
	// host port starts, its node ends the sessions of UDP players of the Service.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HostPort int32 `json:"hostPort,omitempty"`
}
