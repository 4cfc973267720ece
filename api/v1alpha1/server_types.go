package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Server is one game server: it wraps one Pod, knows how many play on it, and can't be deleted
// under its players.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=servers,shortName=srv,categories=dormouse
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Players",type=integer,JSONPath=`.status.players.current`
// +kubebuilder:printcolumn:name="Capacity",type=integer,JSONPath=`.status.players.capacity`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Ports",type=string,JSONPath=`.status.ports[*].port`
// +kubebuilder:printcolumn:name="Deletable",type=boolean,JSONPath=`.status.deletionAllowed`
// +kubebuilder:printcolumn:name="Node",type=string,priority=1,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters, because it becomes a label's value and a host name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.ports) || self.spec.ports.all(p, !has(p.publish) && !has(p.readiness) && !has(p.abortOnClose) && !has(p.asleep))",message="publish, readiness, abortOnClose and asleep of a port are for the template of a GameType, which makes the Service and the ElasticService; here they are said in spec.ports of an ElasticService"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.files) || size(self.metadata.name) <= 57",message="metadata.name must have at most 57 characters where spec.files is set, because a Service <name>-files is made"
type Server struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what runs, where players reach it, and when it may be deleted.
	// +required
	Spec ServerSpec `json:"spec"`

	// status is what Dormouse observed and what the game said.
	// +optional
	// +structType=atomic
	Status ServerStatus `json:"status,omitempty"`
}

// ServerList is a list of Servers.
//
// +kubebuilder:object:root=true
type ServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Server `json:"items"`
}

// ServerSpec is what runs, where players reach it, and when it may be deleted. A change of the
// template, gameContainer, the ports, the storage, players, readiness or health takes effect with
// the next Pod; all else takes effect at once.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gameContainer) || self.template.spec.containers.exists(c, c.name == self.gameContainer)",message="gameContainer must be the name of a container in template.spec.containers"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.hostNetwork) || !self.template.spec.hostNetwork",message="template.spec.hostNetwork isn't supported; remove it and give the port expose: HostPort"
// +kubebuilder:validation:XValidation:rule="!has(self.players) || !has(self.players.probe) || !has(self.ports) || !has(self.players.probe.port) || self.ports.exists(p, p.name == self.players.probe.port)",message="players.probe.port must be the name of a port in ports"
// +kubebuilder:validation:XValidation:rule="!has(self.players) || !has(self.players.probe) || self.players.probe.type == 'none' || (has(self.ports) && size(self.ports) > 0)",message="players.probe needs a port in ports to ask"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.initContainers) || self.template.spec.initContainers.all(c, c.name != 'dormouse-sidecar')",message="template.spec.initContainers can't have a container named dormouse-sidecar, which Dormouse adds itself"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.all(c, c.name != 'dormouse-sidecar')",message="template.spec.containers can't have a container named dormouse-sidecar, which Dormouse adds itself"
// +kubebuilder:validation:XValidation:rule="size(self.template.spec.containers) > 0",message="template.spec.containers needs a container, which is the game"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.all(c, has(c.image) && size(c.image) > 0)",message="each container in template.spec.containers needs an image"
// +kubebuilder:validation:XValidation:rule="!has(self.ports) || self.ports.all(p, !has(p.containerPort) || self.ports.exists_one(q, has(q.containerPort) && q.containerPort == p.containerPort && (p.protocol in ['TCP', 'TCPUDP', 'http', 'tls', 'minecraft'] && q.protocol in ['TCP', 'TCPUDP', 'http', 'tls', 'minecraft'] || p.protocol in ['UDP', 'TCPUDP', 'bedrock', 'source', 'quake3'] && q.protocol in ['UDP', 'TCPUDP', 'bedrock', 'source', 'quake3'])))",message="two ports can't have one containerPort over the same transport protocol: give each its own, or remove one"
// +kubebuilder:validation:XValidation:rule="!has(self.files) && !has(self.backup) || has(self.storage) && size(self.storage) > 0",message="files and backup are of the disks in storage; add one there, or remove them"
type ServerSpec struct {
	// template is the Pod. Dormouse adds its sidecar, a few environment variables, the host
	// ports and the volumes of storage, and leaves the rest as it is. The Pod gets no
	// Kubernetes token unless automountServiceAccountToken asks for it.
	//
	// Whoever applies it on the server's side owns it as a whole: the API server doesn't keep
	// who wrote which of its fields, which took a tenth of each Server.
	// +required
	// +structType=atomic
	Template corev1.PodTemplateSpec `json:"template"`

	// gameContainer is the name of the container that is the game; the first one if it is
	// empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	GameContainer string `json:"gameContainer,omitempty"`

	// ports are the game's ports.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Ports []ServerPort `json:"ports,omitempty"`

	// players is how many may play and how Dormouse knows how many do.
	// +optional
	// +structType=atomic
	Players *PlayersSpec `json:"players,omitempty"`

	// readiness is when the game takes players. Auto: when its first answer to players.probe
	// has come, or, without a probe, when its Pod is ready. SDK: when the game has called
	// Ready. By default Auto.
	// +optional
	Readiness ServerReadiness `json:"readiness,omitempty"`

	// health is when a game that runs is taken for broken.
	// +optional
	// +structType=atomic
	Health HealthSpec `json:"health,omitempty,omitzero"`

	// deletion is what holds beyond the game's word when the Server is to be deleted.
	// +optional
	Deletion DeletionSpec `json:"deletion,omitempty,omitzero"`

	// counters are numbers that the game keeps through the Agones SDK, by name, with the values
	// they begin with.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="a counter's name must have from 1 to 63 letters, digits, '-', '_' and '.', and start and end with a letter or digit"
	Counters map[string]Counter `json:"counters,omitempty"`

	// lists are sets of words that the game keeps through the Agones SDK, by name, with the
	// values they begin with.
	// +optional
	// +kubebuilder:validation:MaxProperties=4
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="a list's name must have from 1 to 63 letters, digits, '-', '_' and '.', and start and end with a letter or digit"
	Lists map[string]List `json:"lists,omitempty"`

	// running is whether the Server has a Pod. A Server that is told to stop keeps its name and
	// its storage; its Pod goes as in a deletion, when its players allow. By default true.
	// +optional
	Running *bool `json:"running,omitempty"`

	// replicas is 1, or 0 for a Server that has no Pod because it sleeps or somebody scaled it
	// down: as with running, its Pod goes when its players allow, and its name and storage stay.
	// It is what the scale subresource sets, so that an ElasticService can put a Server to
	// sleep. Leave it out of manifests, and out of a Fleet's or GameType's template.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	Replicas *int32 `json:"replicas,omitempty"`

	// storage are disks that the Server keeps while it has no Pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Storage []StorageSpec `json:"storage,omitempty"`

	// files serves the files on the disks over SFTP, whether the Server runs or not. It needs
	// storage. A Fleet's template can't have it; a GameType says it in spec.files.
	// +optional
	Files *FilesSpec `json:"files,omitempty"`

	// backup is when the disks are copied, and where to. It needs storage. A Fleet's template can't
	// have it; a GameType says it in spec.backup.
	// +optional
	Backup *BackupSpec `json:"backup,omitempty"`

	// drain takes the Server out of service: it gets no new players, keeps those it has, and is
	// deleted when they are gone. Taking it back makes the Server take players again, as long
	// as its deletion hasn't begun.
	// +optional
	Drain bool `json:"drain,omitempty"`
}

// Runs reports whether the spec asks for a Pod.
func (s *ServerSpec) Runs() bool {
	return (s.Running == nil || *s.Running) && (s.Replicas == nil || *s.Replicas > 0)
}

// ServerReadiness is when a game takes players.
// +kubebuilder:validation:Enum=Auto;SDK
type ServerReadiness string

const (
	// ServerReadinessAuto goes by the probe where there is one, and else by the Pod.
	ServerReadinessAuto ServerReadiness = "Auto"
	// ServerReadinessSDK waits for the game's call of Ready.
	ServerReadinessSDK ServerReadiness = "SDK"
)

// PlayersSpec is how many may play and how Dormouse knows how many do.
type PlayersSpec struct {
	// capacity is how many may play at once; 0 leaves that open. What the game or the probe
	// reports comes before it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Capacity int32 `json:"capacity,omitempty"`

	// probe asks the game itself in its own query protocol. Without one it is asked
	// in the protocol of the first port that has a game's; where none has, or the
	// type is none, the game reports its players through the SDK, or not at all.
	// +optional
	Probe *PlayersProbe `json:"probe,omitempty"`
}

// ProbeType is a game's query protocol.
// +kubebuilder:validation:Enum=minecraft;bedrock;source;quake3;none
type ProbeType string

const (
	// ProbeMinecraft is the server list ping of Minecraft Java Edition.
	ProbeMinecraft ProbeType = "minecraft"
	// ProbeBedrock is the unconnected ping of Minecraft Bedrock Edition.
	ProbeBedrock ProbeType = "bedrock"
	// ProbeSource is the A2S_INFO query of Source and many other games.
	ProbeSource ProbeType = "source"
	// ProbeQuake3 is the getstatus query of the Quake III family.
	ProbeQuake3 ProbeType = "quake3"
	// ProbeNone asks nothing, where a game doesn't answer the protocol that its port speaks.
	ProbeNone ProbeType = "none"
)

// PlayersProbe asks a game for its players in its own query protocol, every health.period.
type PlayersProbe struct {
	// type is the query protocol; none asks nothing.
	// +required
	Type ProbeType `json:"type"`

	// port is the name of the port to ask; the first one if it is empty.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Port string `json:"port,omitempty"`
}

// HealthSpec is when a game that runs is taken for broken: when it answers no probe, or sends
// no health ping through the SDK after it sent one, for failureThreshold periods. A game that
// has neither probe nor pings is as healthy as its Pod.
type HealthSpec struct {
	// initialDelay is how long after its start a game isn't judged; at most 24h.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('24h')",message="initialDelay must be a duration up to 24h such as 30s or 5m"
	InitialDelay *metav1.Duration `json:"initialDelay,omitempty"`

	// period is the time between two probes, and how often a health ping is expected; from 1s
	// to 1h.
	// +optional
	// +kubebuilder:default="5s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="period must be a duration from 1s to 1h such as 5s"
	Period *metav1.Duration `json:"period,omitempty"`

	// failureThreshold is how many periods in a row without an answer or a ping make the Server
	// Unhealthy.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	FailureThreshold int32 `json:"failureThreshold,omitempty"`

	// disabled takes every game for healthy whose Pod runs.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
}

// DeletionPermission is whether a Server may be deleted.
// +kubebuilder:validation:Enum=Allowed;Denied
type DeletionPermission string

const (
	// DeletionAllowed means that the Server may go.
	DeletionAllowed DeletionPermission = "Allowed"
	// DeletionDenied means that the Server must stay.
	DeletionDenied DeletionPermission = "Denied"
)

// DeletionSpec is what holds beyond the game's word when a Server is to be deleted. The game's
// word is its own answer to allow_delete where it has given one; else it may go while it has no
// players and isn't Allocated.
type DeletionSpec struct {
	// unreported is what holds for a game that runs and has said nothing: no players, no
	// permission, no state, and no probe answered. By default Allowed.
	// +optional
	Unreported DeletionPermission `json:"unreported,omitempty"`

	// timeout is how long after a deletion was asked for the Server goes though its players are
	// still there; at most 8760h. 0s means never. By default 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('8760h')",message="timeout must be a duration up to 8760h such as 30m, or 0s for never"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// force deletes the Server at once whoever plays. It may be set while a deletion waits.
	// +optional
	Force bool `json:"force,omitempty"`
}

// Counter is a number that a game keeps.
// +kubebuilder:validation:XValidation:rule="!has(self.count) || (has(self.capacity) ? self.count <= self.capacity : self.count == 0)",message="count must not be above capacity"
type Counter struct {
	// count is the number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count,omitempty"`
	// capacity is the most that count may be.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Capacity int64 `json:"capacity,omitempty"`
}

// List is a set of words that a game keeps.
// +kubebuilder:validation:XValidation:rule="!has(self.values) || (has(self.capacity) ? size(self.values) <= self.capacity : size(self.values) == 0)",message="values must not be more than capacity"
type List struct {
	// capacity is the most values there may be.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Capacity int64 `json:"capacity,omitempty"`
	// values are the words, each once.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=128
	Values []string `json:"values,omitempty"`
}

// StorageSpec is a disk that a Server keeps while it has no Pod: a PersistentVolumeClaim named
// <server>-<name>.
type StorageSpec struct {
	// name tells the disks apart.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name must be lower case letters, digits and '-'"
	Name string `json:"name"`

	// mountPath is where the game container finds the disk.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.contains(':')",message="mountPath must start with '/' and have no ':'"
	MountPath string `json:"mountPath"`

	// size is how large the disk is asked to be: more than 0.
	// +required
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : size(self) <= 32 && isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",message="size must be a quantity above 0 such as 10Gi or 500Mi"
	Size resource.Quantity `json:"size"`

	// storageClassName is the disk's StorageClass; the cluster's default one if it is absent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// onDelete is what becomes of the disk when the Server is deleted.
	// +optional
	// +kubebuilder:default=Retain
	OnDelete StorageOnDelete `json:"onDelete,omitempty"`

	// from is what the disk begins with when it is made: empty by default. It is read once, when the
	// Server is first to start, and not while it is stopped or asleep; a disk that is there stays as it
	// is. Until then spec.files doesn't serve the disk, and it isn't copied.
	// +optional
	From *DiskSource `json:"from,omitempty"`
}

// StorageOnDelete is what becomes of a disk when its Server is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type StorageOnDelete string

const (
	// StorageRetain keeps the disk for a later Server of the same name.
	StorageRetain StorageOnDelete = "Retain"
	// StorageDelete deletes the disk with the Server.
	StorageDelete StorageOnDelete = "Delete"
)

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

// ServerPort is one of a game's ports. Whoever applies one on the server's side owns it as a whole.
//
// +structType=atomic
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
