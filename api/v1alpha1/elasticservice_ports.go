package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Protocol is what is spoken on a port.
// +kubebuilder:validation:Enum=tcp;udp;http;tls;minecraft;bedrock;source;quake3
type Protocol string

const (
	// ProtocolTCP is any protocol over TCP: bytes are held and passed on as they are. A
	// connection wakes the service.
	ProtocolTCP Protocol = "tcp"
	// ProtocolUDP is any protocol over UDP: datagrams are held and passed on as they are. The
	// first one wakes the service.
	ProtocolUDP Protocol = "udp"
	// ProtocolHTTP is HTTP/1, and what begins with it or shares its port: WebSocket, HTTP/2,
	// TLS. Probes that the spec names are answered while the service sleeps; any other request
	// wakes it.
	ProtocolHTTP Protocol = "http"
	// ProtocolTLS is anything inside TLS, over TCP, which is passed on as it is. A client's
	// hello wakes the service; what is no TLS doesn't.
	ProtocolTLS Protocol = "tls"
	// ProtocolMinecraft is Minecraft's Java edition, over TCP. Server lists are answered while
	// the service sleeps; a login wakes it.
	ProtocolMinecraft Protocol = "minecraft"
	// ProtocolBedrock is Minecraft's Bedrock edition on RakNet, over UDP. Pings are answered
	// while the service sleeps; a request for a connection wakes it.
	ProtocolBedrock Protocol = "bedrock"
	// ProtocolSource is the query protocol of Valve's games and many others, over UDP. Queries
	// are answered while the service sleeps; any other datagram wakes it.
	ProtocolSource Protocol = "source"
	// ProtocolQuake3 is that of Quake 3 and the games that come from it, over UDP. Queries are
	// answered while the service sleeps; any other datagram wakes it.
	ProtocolQuake3 Protocol = "quake3"
)

// Transport is the transport protocol under what is spoken on a port.
func (p Protocol) Transport() corev1.Protocol {
	switch p {
	case ProtocolUDP, ProtocolBedrock, ProtocolSource, ProtocolQuake3:
		return corev1.ProtocolUDP
	case ProtocolTCP, ProtocolHTTP, ProtocolTLS, ProtocolMinecraft:
	}
	return corev1.ProtocolTCP
}

// NamesHosts reports whether clients of the protocol say first which host they want, so that a
// front can tell several services apart.
func (p Protocol) NamesHosts() bool {
	return p == ProtocolMinecraft || p == ProtocolTLS || p == ProtocolHTTP
}

// Readiness is how the resolver knows that a pod takes connections.
// +kubebuilder:validation:Enum=Auto;Connect
type Readiness string

const (
	// ReadinessAuto waits for the pods' readiness probe where they have one, and for the
	// protocol's own sign otherwise: a TCP connect, a running container for UDP.
	ReadinessAuto Readiness = "Auto"
	// ReadinessConnect goes by a TCP connect alone, which is up to a second earlier than
	// kubelet's probe.
	ReadinessConnect Readiness = "Connect"
)

// PortSpec has settings of one of a Service's ports.
// +kubebuilder:validation:XValidation:rule="!has(self.readiness) || self.readiness != 'Connect' || !has(self.protocol) || self.protocol in ['tcp', 'http', 'tls', 'minecraft']",message="readiness Connect needs a protocol over TCP, because UDP has no connect; remove it or choose Auto"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || (has(self.protocol) && !(self.protocol in ['tcp', 'udp', 'tls']))",message="asleep needs a protocol whose queries can be answered: http, minecraft, bedrock, source or quake3"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || (!has(self.asleep.favicon) && !has(self.asleep.rejoin)) || (has(self.protocol) && self.protocol == 'minecraft')",message="asleep.favicon and asleep.rejoin need the protocol minecraft; others have no such thing"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.protocolVersion) || !has(self.protocol) || self.protocol != 'source'",message="asleep.protocolVersion needs the protocol minecraft, bedrock or quake3; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.map) || !has(self.protocol) || self.protocol != 'minecraft'",message="asleep.map needs the protocol bedrock, source or quake3; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.game) || (has(self.protocol) && self.protocol in ['source', 'quake3'])",message="asleep.game needs the protocol source or quake3; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || (!has(self.asleep.folder) && !has(self.asleep.appID)) || (has(self.protocol) && self.protocol == 'source')",message="asleep.folder and asleep.appID need the protocol source; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.asleep.probes) || (has(self.protocol) && self.protocol == 'http')",message="asleep.probes needs the protocol http; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.asleep) || !has(self.protocol) || self.protocol != 'http' || (!has(self.asleep.version) && !has(self.asleep.protocolVersion) && !has(self.asleep.maxPlayers) && !has(self.asleep.map))",message="asleep.version, protocolVersion, maxPlayers and map need the protocol of a game; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.http) || (has(self.protocol) && self.protocol == 'http')",message="http needs the protocol http; set it, or remove http"
type PortSpec struct {
	// name is the port's name in the Service; empty for a Service's only port when that has no
	// name.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// protocol is what is spoken on the port: tcp or udp; http; tls (over TCP), which is passed
	// on as it is and wakes by a client's hello alone; or a game's that the resolver
	// understands: minecraft (over TCP), bedrock, source or quake3 (over UDP). By default the
	// transport protocol in the Service, which it must agree with. A connection that went
	// through the resolver stays there until it ends, and keeps the service awake as long: with
	// http it ends between two requests once a server is up, so that the client's next goes
	// straight to one; with tcp one that is kept alive stays.
	// +optional
	Protocol Protocol `json:"protocol,omitempty"`

	// readiness is how the resolver knows that a pod takes connections on this port.
	// +optional
	// +kubebuilder:default=Auto
	Readiness Readiness `json:"readiness,omitempty"`

	// abortOnClose is set where a client over TCP who ends its side while it waits is gone, as
	// after a time-out of its own: nothing is passed on of what it sent. Without, it is thought
	// to have said all and to listen. By default true for http, else false.
	// +optional
	AbortOnClose *bool `json:"abortOnClose,omitempty"`

	// asleep is what the resolver tells server lists in the server's place, where the protocol
	// is a game's, and probes, where it is http. The number of players is 0.
	// +optional
	Asleep *Asleep `json:"asleep,omitempty"`

	// http has settings of a port whose protocol is http.
	// +optional
	HTTP *PortHTTP `json:"http,omitempty"`
}

// Asleep is what a resolver tells server lists and probes while a service sleeps and wakes.
type Asleep struct {
	// motd is the message of the day while the service sleeps, or the server's name where the
	// protocol has no message. What is too long for the protocol is cut off.
	// +optional
	// +kubebuilder:default="Asleep. Join to wake it up."
	// +kubebuilder:validation:MaxLength=256
	MOTD string `json:"motd,omitempty"`

	// wakingMotd takes its place while the service wakes, and stands in http's waiting page.
	// {elapsed} in it becomes the time since the wake, such as 45s or 1m5s.
	// +optional
	// +kubebuilder:default="Waking up, {elapsed} so far."
	// +kubebuilder:validation:MaxLength=256
	WakingMOTD string `json:"wakingMotd,omitempty"`

	// rejoin is what a player of Minecraft's Java edition reads who was held for as long as may
	// be: 25 s with 1.12 and older, where the game itself would soon give up, else
	// hold.timeout.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Rejoin string `json:"rejoin,omitempty"`

	// version is the name of the server's version.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// protocolVersion is the number of the version of the game's protocol, by which lists tell
	// who can join. By default Minecraft's Java edition is told the client's own, the Bedrock
	// edition 0, and Quake 3 its own, 68.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ProtocolVersion int32 `json:"protocolVersion,omitempty"`

	// maxPlayers is how many may play. By default what the game's servers have by default: 20
	// in Minecraft's Java edition, 10 in the Bedrock edition, else 16.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPlayers int32 `json:"maxPlayers,omitempty"`

	// favicon is the picture in the list of Minecraft's Java edition: a PNG of 64 by 64 pixels
	// as a data URI.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="self.matches('^data:image/png;base64,[A-Za-z0-9+/]+=*$')",message="favicon must be data:image/png;base64, and a PNG in base64 without line ends"
	Favicon string `json:"favicon,omitempty"`

	// map is the level that lists show; in the Bedrock edition the second line.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Map string `json:"map,omitempty"`

	// game is what the game is called. Clients of Quake 3's family pass over a server of
	// another game than theirs.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Game string `json:"game,omitempty"`

	// folder is the game's directory, in the protocol source.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Folder string `json:"folder,omitempty"`

	// appID is the game's number on Steam, in the protocol source.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	AppID int64 `json:"appID,omitempty"`

	// probes are the requests of health checks and uptime monitors that are answered while the
	// service sleeps and wakes, and wake nothing. The first that fits a request answers it; a
	// request that none fits wakes the service. For the protocol http.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Probes []HTTPProbe `json:"probes,omitempty"`
}

// Balance decides which Server or pod a new client gets.
// +kubebuilder:validation:Enum=Spread;Packed
type Balance string

const (
	// BalanceSpread picks the emptiest server.
	BalanceSpread Balance = "Spread"
	// BalancePacked picks the fullest server that has room.
	BalancePacked Balance = "Packed"
)

// ProxyProtocol is what the resolver reads and writes of the PROXY protocol, by which proxies
// tell each other where a client really is. It is for TCP: ports over UDP do without.
//
// +kubebuilder:validation:XValidation:rule="has(self.trustedCIDRs) || (has(self.send) && self.send)",message="proxyProtocol needs trustedCIDRs or send: true; remove it if neither is wanted"
type ProxyProtocol struct {
	// trustedCIDRs are the addresses of the load balancers in front of the resolver that send a
	// header, such as 10.0.0.0/8 or 2001:db8::/32. A connection from there must begin with one,
	// of version 1 or 2, which then says where the client is; without one it is refused. What
	// comes from anywhere else is passed on as it is.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="trustedCIDRs must be networks such as 10.0.0.0/8 or 2001:db8::/32"
	TrustedCIDRs []string `json:"trustedCIDRs,omitempty"`

	// send makes the resolver begin each connection to a server with a header of version 2. It
	// names the client, or says LOCAL where the resolver itself asks the server something. The
	// server must be set up to take such headers.
	// +optional
	Send bool `json:"send,omitempty"`
}
