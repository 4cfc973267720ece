package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fleet keeps a number of Servers that are made from one template.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=fleets,shortName=flt,categories=dormouse
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Allocated",type=integer,JSONPath=`.status.allocatedReplicas`
// +kubebuilder:printcolumn:name="Draining",type=integer,JSONPath=`.status.drainingReplicas`
// +kubebuilder:printcolumn:name="Players",type=integer,JSONPath=`.status.players`
// +kubebuilder:printcolumn:name="Capacity",type=integer,JSONPath=`.status.capacity`
// +kubebuilder:printcolumn:name="Updated",type=integer,priority=1,JSONPath=`.status.updatedReplicas`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50",message="metadata.name must have at most 50 characters, because the names of its Servers are longer and become host names"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.template.spec.ports) || self.spec.template.spec.ports.all(p, !has(p.publish) && !has(p.readiness) && !has(p.abortOnClose) && !has(p.asleep))",message="publish, readiness, abortOnClose and asleep of a port are for the template of a GameType, which makes the Service and the ElasticService; here they are said in spec.ports of an ElasticService"
type Fleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is how many Servers there are, and of what.
	// +required
	Spec FleetSpec `json:"spec"`

	// status is what Dormouse observed.
	// +optional
	// +structType=atomic
	Status FleetStatus `json:"status,omitempty"`
}

// FleetList is a list of Fleets.
//
// +kubebuilder:object:root=true
type FleetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Fleet `json:"items"`
}

// FleetSpec is how many Servers there are, and of what.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas <= 1 || !has(self.template.spec.ports) || !self.template.spec.ports.exists(p, has(p.hostPort)) || has(self.template.metadata) && has(self.template.metadata.labels) && 'dormouse.dev/gametype' in self.template.metadata.labels || oldSelf.hasValue()",optionalOldSelf=true,message="a port with a fixed hostPort is for one Server: nodes have each number once; leave hostPort out, and each Server gets a number of its own, or set replicas to 1"
type FleetSpec struct {
	// replicas is how many Servers there should be that take players. Servers that drain come
	// on top.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// template is what new Servers are made from. updateStrategy decides what a change of it
	// means for those that are there.
	// +required
	Template ServerTemplate `json:"template"`

	// places are those that Servers with storage have: numbers and ranges such as 0-2,5, as many
	// as replicas, and 10,000 at most in all. Where it is absent they are 0 to replicas-1. A
	// GameType sets it, so that no two of its revisions have the same place. Without storage
	// Servers have no places.
	// +optional
	// +kubebuilder:validation:MaxLength=60000
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$')",message="places must be numbers and ranges such as 0-2,5"
	Places string `json:"places,omitempty"`

	// updateStrategy is OnDelete: Servers of an earlier template stay until something else ends
	// them. Or Rolling: they are replaced as new ones become Ready, a quarter of replicas at a
	// time, rounded up. There are never fewer Ready because of that than replicas, unless they
	// have storage: a place's new Server starts when the old one has left its disk. One with
	// players goes as scaleDown.policy says; an Allocated one stays until its game ends it.
	// +optional
	// +kubebuilder:default=OnDelete
	UpdateStrategy FleetUpdateStrategy `json:"updateStrategy,omitempty"`

	// scaleDown decides which Servers go first and how.
	// +optional
	// +kubebuilder:default={}
	ScaleDown ScaleDownSpec `json:"scaleDown,omitempty"`

	// scheduling is how the Servers spread over nodes: Packed asks the scheduler to prefer
	// nodes that have Servers of this Fleet, so that others become empty and can be removed;
	// Distributed to prefer nodes that have none. A template with an affinity or topology
	// spread of its own is left alone.
	// +optional
	// +kubebuilder:default=Packed
	Scheduling Scheduling `json:"scheduling,omitempty"`
}

// ServerTemplate is what a Fleet makes Servers from.
type ServerTemplate struct {
	// metadata has the labels and annotations of each Server.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitempty"`

	// spec is each Server's spec.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.files) && !has(self.backup)",message="a template can't have files or backup: set spec.files and spec.backup of the GameType"
	// +kubebuilder:validation:XValidation:rule="!has(self.players) || !has(self.players.probe) || self.players.probe.type == 'none' || !has(self.ports) || self.ports.exists(p, p.protocol in (self.players.probe.type == 'minecraft' ? ['TCPUDP', 'TCP', 'http', 'tls', 'minecraft'] : ['TCPUDP', 'UDP', 'bedrock', 'source', 'quake3']) && self.ports.exists(q, q.name == (has(self.players.probe.port) && self.players.probe.port != '' ? self.players.probe.port : self.ports[0].name) && (p.name == q.name || has(p.containerPort) && has(q.containerPort) && p.containerPort == q.containerPort)))",message="players.probe.type must fit the protocol of the port that it asks, which is TCP for minecraft and UDP for the others: correct that port's protocol, or name another port in players.probe.port"
	Spec ServerSpec `json:"spec"`
}

// TemplateMetadata has labels and annotations for what is made from a template.
type TemplateMetadata struct {
	// labels are the labels of each object.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are the annotations of each object.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ScaleDownSpec decides which Servers go first when there are too many, and how. First go those
// that were never ready, then those whose deletion is allowed, then those with the fewest
// players; order decides between equals. An Allocated Server never goes.
type ScaleDownSpec struct {
	// order decides between Servers with the same number of players: EmptiestFirst by the
	// fewest players and then the youngest, OldestFirst and NewestFirst by age.
	// +optional
	// +kubebuilder:default=EmptiestFirst
	Order ScaleDownOrder `json:"order,omitempty"`

	// policy is what becomes of a Server with players. Drain: it gets no new players and is
	// deleted when those it has are gone; a scale-up takes it back. Delete: its deletion is
	// asked for at once, which tells the game to shut down and can't be taken back; it still
	// waits for its players.
	// +optional
	// +kubebuilder:default=Drain
	Policy ScaleDownPolicy `json:"policy,omitempty"`
}

// ScaleDownOrder decides which of two equal Servers goes first.
// +kubebuilder:validation:Enum=EmptiestFirst;OldestFirst;NewestFirst
type ScaleDownOrder string

const (
	// EmptiestFirst takes the Server with the fewest players, then the youngest.
	EmptiestFirst ScaleDownOrder = "EmptiestFirst"
	// OldestFirst takes the oldest Server.
	OldestFirst ScaleDownOrder = "OldestFirst"
	// NewestFirst takes the youngest Server.
	NewestFirst ScaleDownOrder = "NewestFirst"
)

// ScaleDownPolicy is what becomes of a Server with players.
// +kubebuilder:validation:Enum=Drain;Delete
type ScaleDownPolicy string

const (
	// ScaleDownDrain drains the Server and deletes it when it is empty.
	ScaleDownDrain ScaleDownPolicy = "Drain"
	// ScaleDownDelete deletes the Server, which waits for its players.
	ScaleDownDelete ScaleDownPolicy = "Delete"
)

// FleetUpdateStrategy is what becomes of a Fleet's Servers of an earlier template.
// +kubebuilder:validation:Enum=OnDelete;Rolling
type FleetUpdateStrategy string

const (
	// FleetUpdateOnDelete leaves them until something else ends them.
	FleetUpdateOnDelete FleetUpdateStrategy = "OnDelete"
	// FleetUpdateRolling replaces them.
	FleetUpdateRolling FleetUpdateStrategy = "Rolling"
)

// Scheduling is how Servers spread over nodes.
// +kubebuilder:validation:Enum=Packed;Distributed
type Scheduling string

const (
	// SchedulingPacked fills nodes one after the other.
	SchedulingPacked Scheduling = "Packed"
	// SchedulingDistributed spreads over nodes.
	SchedulingDistributed Scheduling = "Distributed"
)

// FleetStatus is what Dormouse observed.
type FleetStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of Servers that neither drain nor are being deleted.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is how many of them are Ready or Allocated.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// updatedReplicas is how many of them are of the template as it is, or on a node that is lost.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// allocatedReplicas is how many of them are Allocated.
	// +optional
	AllocatedReplicas int32 `json:"allocatedReplicas"`

	// drainingReplicas is the number of Servers that wait for their players' leave, drained or
	// being deleted.
	// +optional
	DrainingReplicas int32 `json:"drainingReplicas"`

	// players is how many play on all Servers, draining ones too.
	// +optional
	Players int32 `json:"players"`

	// capacity is how many could play on the Servers counted in readyReplicas.
	// +optional
	Capacity int32 `json:"capacity"`

	// selector finds the Fleet's Pods, as a string.
	// +optional
	Selector string `json:"selector,omitempty"`

	// firstReadyTime is when one of its Servers was Ready for the first time.
	// +optional
	FirstReadyTime *metav1.Time `json:"firstReadyTime,omitempty"`

	// conditions are Ready and Updated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
