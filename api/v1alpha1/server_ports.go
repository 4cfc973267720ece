package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Expose says how a game's port is reached from outside the cluster.
// +kubebuilder:validation:Enum=None;HostPort;Passthrough
type Expose string

const (
	// ExposeNone publishes nothing: players come through a Service.
	ExposeNone Expose = "None"
	// ExposeHostPort publishes the port on the node's address, under a number that the operator
	// picks or hostPort names.
	ExposeHostPort Expose = "HostPort"
	// ExposePassthrough is HostPort with the container's port being the same number, which the
	// game must listen on: it finds it in the environment variable SERVER_PORT_<NAME> or
	// through the SDK.
	ExposePassthrough Expose = "Passthrough"
)

// ServerProtocol is what is spoken on a game's port: a transport protocol, or what an
// ElasticService's port can speak over one.
// +kubebuilder:validation:Enum=TCP;UDP;TCPUDP;http;tls;minecraft;bedrock;source;quake3
type ServerProtocol string

const (
	// ServerProtocolTCP is anything over TCP.
	ServerProtocolTCP ServerProtocol = "TCP"
	// ServerProtocolUDP is anything over UDP.
	ServerProtocolUDP ServerProtocol = "UDP"
	// ServerProtocolTCPUDP is both on one number.
	ServerProtocolTCPUDP ServerProtocol = "TCPUDP"
)

// Application is what is spoken over the transport protocol; empty where the port doesn't say.
func (p ServerProtocol) Application() Protocol {
	switch p {
	case ServerProtocolTCP, ServerProtocolUDP, ServerProtocolTCPUDP, "":
		return ""
	}
	return Protocol(p)
}

// Transport is TCP, UDP or TCPUDP.
func (p ServerProtocol) Transport() ServerProtocol {
	if app := p.Application(); app != "" {
		return ServerProtocol(app.Transport())
	}
	return p
}

// Transports are the transport protocols of the port, TCP first.
func (p ServerProtocol) Transports() []corev1.Protocol {
	switch p.Transport() {
	case ServerProtocolUDP:
		return []corev1.Protocol{corev1.ProtocolUDP}
	case ServerProtocolTCPUDP:
		return []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}
	default:
		return []corev1.Protocol{corev1.ProtocolTCP}
	}
}

// ServerPort is one of a game's ports.
// +kubebuilder:validation:XValidation:rule="(has(self.expose) && self.expose == 'Passthrough') || has(self.containerPort)",message="containerPort is needed, except with expose: Passthrough"
// +kubebuilder:validation:XValidation:rule="!(has(self.expose) && self.expose == 'Passthrough') || !has(self.containerPort)",message="containerPort can't be set with expose: Passthrough, which makes it the host port; remove it"
// +kubebuilder:validation:XValidation:rule="(!has(self.containerPort) || self.containerPort < 9357 || self.containerPort > 9359) && (!has(self.hostPort) || self.hostPort < 9357 || self.hostPort > 9359)",message="ports 9357 to 9359 are the sidecar's; choose another"
// +kubebuilder:validation:XValidation:rule="(has(self.containerPort) && (!has(self.publish) || self.publish)) || (!has(self.asleep) && !has(self.readiness) && !has(self.abortOnClose))",message="asleep, readiness and abortOnClose need a containerPort, and no publish: false, because they are about players who come through the Service"
// +kubebuilder:validation:XValidation:rule="!has(self.readiness) || self.readiness != 'Connect' || !has(self.protocol) || !(self.protocol in ['UDP', 'bedrock', 'source', 'quake3'])",message="readiness Connect needs a protocol over TCP, because UDP has no connect; remove it or choose Auto"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || (has(self.protocol) && self.protocol in ['http', 'minecraft', 'bedrock', 'source', 'quake3'])",message="asleep needs a protocol whose queries can be answered: http, minecraft, bedrock, source or quake3"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || (!has(self.asleep.favicon) && !has(self.asleep.rejoin)) || (has(self.protocol) && self.protocol == 'minecraft')",message="asleep.favicon and asleep.rejoin need the protocol minecraft; others have no such thing"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.protocolVersion) || !has(self.protocol) || self.protocol != 'source'",message="asleep.protocolVersion needs the protocol minecraft, bedrock or quake3; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.map) || !has(self.protocol) || self.protocol != 'minecraft'",message="asleep.map needs the protocol bedrock, source or quake3; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.game) || (has(self.protocol) && self.protocol in ['source', 'quake3'])",message="asleep.game needs the protocol source or quake3; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || (!has(self.asleep.folder) && !has(self.asleep.appID)) || (has(self.protocol) && self.protocol == 'source')",message="asleep.folder and asleep.appID need the protocol source; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.probes) || (has(self.protocol) && self.protocol == 'http')",message="asleep.probes needs the protocol http; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.protocol) || self.protocol != 'http' || (!has(self.asleep.version) && !has(self.asleep.protocolVersion) && !has(self.asleep.maxPlayers) && !has(self.asleep.map))",message="asleep.version, protocolVersion, maxPlayers and map need the protocol of a game; remove them"
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

	// protocol is TCP, UDP, or TCPUDP for both on one number. Or what is spoken: http, tls or
	// minecraft, which are over TCP, bedrock, source or quake3, which are over UDP. A game's own
	// protocol is the type of players.probe, too, where there is no other, in Pods that are
	// made from then on; and the resolver answers its server lists while a GameType sleeps.
	// +optional
	// +kubebuilder:default=TCP
	Protocol ServerProtocol `json:"protocol,omitempty"`

	// expose is how the port is reached from outside the cluster.
	// +optional
	// +kubebuilder:default=None
	Expose Expose `json:"expose,omitempty"`

	// hostPort is the number on the node. If it is absent the operator picks one from its range
	// (7000 to 8000 by default), and a Server whose number is taken on every node waits for
	// one. Over UDP it picks none that is a UDP port of an ElasticService's Service while there
	// are others, and neither should you: when a Pod with that host port starts, its node ends
	// the sessions of UDP players of the Service.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HostPort int32 `json:"hostPort,omitempty"`

	// publish is whether players use the port. With false it isn't in a GameType's Service, and
	// wakes nothing: a remote console or metrics, for example. By default true.
	// +optional
	Publish *bool `json:"publish,omitempty"`

	// readiness says, in a GameType, how the resolver knows that a Server takes connections on
	// this port; by default Auto.
	// +optional
	Readiness Readiness `json:"readiness,omitempty"`

	// abortOnClose says, in a GameType, that a client over TCP who ends its side while it waits
	// is gone, as in an ElasticService. By default true for http, else false.
	// +optional
	AbortOnClose *bool `json:"abortOnClose,omitempty"`

	// asleep is, in a GameType, what the resolver tells server lists and probes while the game
	// sleeps.
	// +optional
	Asleep *Asleep `json:"asleep,omitempty"`
}

// Published reports whether players use the port.
func (p *ServerPort) Published() bool { return p.Publish == nil || *p.Publish }
