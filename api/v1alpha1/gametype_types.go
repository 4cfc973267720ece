package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GameType is one game: what its Servers are made from, how many there are, how a new version
// takes over from the old one, where players find it, and when it sleeps. It makes Fleets, a
// Service named like itself and an ElasticService for that Service.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.scale.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=gametypes,shortName=gt,categories=dormouse
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.scale.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Players",type=integer,JSONPath=`.status.players`
// +kubebuilder:printcolumn:name="Capacity",type=integer,JSONPath=`.status.capacity`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.updateRevision.number`
// +kubebuilder:printcolumn:name="Updated",type=integer,priority=1,JSONPath=`.status.updatedReplicas`
// +kubebuilder:printcolumn:name="Draining",type=integer,priority=1,JSONPath=`.status.drainingReplicas`
// +kubebuilder:printcolumn:name="Update",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 39",message="metadata.name must have at most 39 characters, because the names of its Fleets and Servers are longer and become host names"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be lower case letters, digits and '-', starting with a letter, because its Service has the same name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.wakeWith) || !(self.metadata.name in self.spec.wakeWith)",message="spec.wakeWith names other ElasticServices, and this is the name of the GameType's own; remove it"
type GameType struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the game is, how many Servers it has, and how they change.
	// +required
	Spec GameTypeSpec `json:"spec"`

	// status is what Dormouse observed.
	// +optional
	// +structType=atomic
	Status GameTypeStatus `json:"status,omitempty"`
}

// GameTypeList is a list of GameTypes.
//
// +kubebuilder:object:root=true
type GameTypeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GameType `json:"items"`
}

// GameTypeSpec says what a game is, how many Servers it has, and how they change.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas <= 1 || !has(self.template.spec.ports) || !self.template.spec.ports.exists(p, has(p.hostPort)) || oldSelf.hasValue()",optionalOldSelf=true,message="a port with a fixed hostPort is for one Server: nodes have each number once; leave hostPort out, and each Server gets a number of its own, or set replicas to 1"
// +kubebuilder:validation:XValidation:rule="!has(self.wake) || !has(self.sleep) || !has(self.sleep.wake)",message="wake is there twice; keep spec.wake and remove spec.sleep.wake"
// +kubebuilder:validation:XValidation:rule="!has(self.files) && !has(self.backup) || has(self.template.spec.storage) && size(self.template.spec.storage) > 0",message="files and backup are of the disks in template.spec.storage; add one there, or remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.files) && !has(self.backup) || !has(self.replicas) || self.replicas <= 100",message="with files or backup there can be at most 100 replicas"
type GameTypeSpec struct {
	// replicas is how many Servers there are to be while the game is awake. Servers that drain,
	// and those that an update adds for a while, come on top. Sleep, wake and autoscalers don't
	// change it: what they want is in scale, which begins with this number and follows each
	// change of it, unless a GameAutoscaler scales the game. The number of a sleeping game may
	// be changed without waking it.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// scale is how many Servers there are to be now, as sleep, wake, kubectl scale and
	// autoscalers set it. Leave it out of manifests: Dormouse fills it in, and a manifest
	// without it can be applied again and again without waking a game or putting it to sleep.
	// +optional
	Scale *GameTypeScale `json:"scale,omitempty"`

	// template is what the Servers are made from. Changing it begins an update.
	// Changing it back ends that update: the Servers that are still there stay,
	// and those that only drain take players again. What its ports say of players
	// who come through the Service (publish, readiness, abortOnClose and asleep) and
	// what is spoken over their transport protocol changes at once, without an update.
	// +required
	Template ServerTemplate `json:"template"`

	// update is how a changed template takes over.
	// +optional
	// +kubebuilder:default={}
	Update UpdateSpec `json:"update,omitempty"`

	// service is how players reach the game: by a Service of the GameType's name, whose ports
	// are those of the template that have a containerPort.
	// +optional
	// +kubebuilder:default={}
	Service GameServiceSpec `json:"service,omitempty"`

	// sleep lets the game sleep at zero Servers while nobody plays, and wake when somebody
	// connects. A game without it never sleeps by itself.
	// +optional
	Sleep *SleepSpec `json:"sleep,omitempty"`

	// front makes the game share the address of another Service, where clients
	// say by which name they want it.
	// +optional
	Front *Front `json:"front,omitempty"`

	// wake says what wakes the game, and who may.
	// +optional
	Wake *Wake `json:"wake,omitempty"`

	// awake are windows of time in which the game is kept awake, played or not, and woken for,
	// as in an ElasticService.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Awake []TimeWindow `json:"awake,omitempty"`

	// wakeWith are the names of other ElasticServices of the namespace that are woken with the
	// game, and for which its players wait, as in an ElasticService. A GameType's ElasticService
	// has the GameType's name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="wakeWith must be names of ElasticServices: lower case letters, digits, '-' and '.'"
	WakeWith []string `json:"wakeWith,omitempty"`

	// hold bounds what is kept for players while the game wakes. Where it is set,
	// sleep.hold doesn't count.
	// +optional
	Hold *Hold `json:"hold,omitempty"`

	// scaleDown says which Servers go first and how, in an update, too.
	// +optional
	// +kubebuilder:default={}
	ScaleDown ScaleDownSpec `json:"scaleDown,omitempty"`

	// scheduling is how the Servers of one revision spread over nodes, as in a Fleet.
	// +optional
	// +kubebuilder:default=Packed
	Scheduling Scheduling `json:"scheduling,omitempty"`

	// files serves the files on the disks of the places over SFTP, each with a Service of its own,
	// whether the game sleeps or not. It needs storage in the template, and at most 100 replicas.
	// Its changes make no new revision.
	// +optional
	Files *FilesSpec `json:"files,omitempty"`

	// backup is when the disks of each place are copied, and where to. It needs storage in the
	// template, and at most 100 replicas. Its changes make no new revision.
	// +optional
	Backup *BackupSpec `json:"backup,omitempty"`

	// revisionHistoryLimit is how many Fleets of earlier revisions are kept at zero Servers.
	// Going back to one of those makes no new Fleet.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// UpdateSpec is how a changed template takes over. Whatever it says, a Server on which somebody
// plays is drained and not ended, until retireAfter.
//
// +kubebuilder:validation:XValidation:rule="(has(self.strategy) && self.strategy == 'Recreate') || !has(self.maxSurge) || !has(self.maxUnavailable) || !(string(self.maxSurge) in ['0', '0%', '00%'] && string(self.maxUnavailable) in ['0', '0%', '00%'])",message="maxSurge and maxUnavailable can't both be 0, because an update could then never begin; set one of them to 1 or more"
type UpdateSpec struct {
	// strategy is Gradual: Servers of the new revision come, and as they become Ready those of
	// the old one go. Or Recreate: the new ones come when no old one takes players any more.
	// +optional
	// +kubebuilder:default=Gradual
	Strategy UpdateStrategy `json:"strategy,omitempty"`

	// maxSurge is how many Servers more than replicas may take players or start during a
	// Gradual update: a number, or a percentage of replicas, rounded up. Those that drain come
	// on top. It is of no use to Recreate.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^(100|[0-9]{1,2})%$') : self >= 0 && self <= 10000",message="maxSurge must be a number from 0 to 10000, or a percentage from 0% to 100% such as 25%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is how many Servers fewer than replicas may be Ready because of a Gradual
	// update: a number, or a percentage of replicas, rounded down. With 0 a revision that never
	// gets Ready never costs an old Server that is. If both numbers come out at 0 this one
	// counts as 1. It is of no use to Recreate.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^(100|[0-9]{1,2})%$') : self >= 0 && self <= 10000",message="maxUnavailable must be a number from 0 to 10000, or a percentage from 0% to 100% such as 25%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// retireAfter is how long the Servers of an earlier revision may drain once all of them
	// were told to; at most 8760h. After that they are deleted by force: the game is told to
	// end, has its Pod's grace period for that, and whoever still plays is cut off. Allocated
	// ones go, too. 0s means never.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('8760h')",message="retireAfter must be a duration up to 8760h such as 30m or 12h, or 0s for never"
	RetireAfter *metav1.Duration `json:"retireAfter,omitempty"`

	// progressDeadline is how long an update may get no further before the condition
	// Progressing reports it; at most 8760h. The update goes on trying. 0s means never.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('8760h')",message="progressDeadline must be a duration up to 8760h such as 10m, or 0s for never"
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`
}

// UpdateStrategy is how a changed template takes over.
// +kubebuilder:validation:Enum=Gradual;Recreate
type UpdateStrategy string

const (
	// UpdateGradual has new Servers take over one after the other.
	UpdateGradual UpdateStrategy = "Gradual"
	// UpdateRecreate makes new Servers when no old one takes players any more.
	UpdateRecreate UpdateStrategy = "Recreate"
)

// GameTypeScale is how many Servers there are to be now.
type GameTypeScale struct {
	// replicas is that number; 0 while the game sleeps. It is what the scale subresource reads
	// and writes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas int32 `json:"replicas"`

	// of is spec.replicas as it was taken over last. A change of spec.replicas is known by it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Of *int32 `json:"of,omitempty"`
}

// SleepSpec is when a game sleeps and what a wake brings. Its fields become those of the
// GameType's ElasticService.
//
// +kubebuilder:validation:XValidation:rule="!has(self.balance) || self.handoff == 'Never'",message="balance needs handoff: Never, because otherwise players go past the resolver; set it, or remove balance"
// +kubebuilder:validation:XValidation:rule="!has(self.proxyProtocol) || self.handoff == 'Never'",message="proxyProtocol needs handoff: Never, because otherwise players go past the resolver; set it, or remove proxyProtocol"
type SleepSpec struct {
	// after is how long nobody must have played before the game sleeps; at least 1s and at most
	// a year. 0s means never.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && (duration(self) == duration('0s') || (duration(self) >= duration('1s') && duration(self) <= duration('8760h')))",message="after must be a duration from 1s to 8760h such as 90s, 10m or 1h, or 0s for never"
	After *metav1.Duration `json:"after,omitempty"`

	// minReplicas is the number of Servers that a wake brings, within the bounds of a
	// GameAutoscaler that targets the game. When it is absent a wake brings spec.replicas, and 1
	// where that is 0.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// players keeps the game awake while anybody plays on one of its Servers.
	// +optional
	// +kubebuilder:default=true
	Players *bool `json:"players,omitempty"`

	// triggers are further numbers that tell how busy the game is: it sleeps only when each of
	// them has been below its threshold for as long as after says.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Triggers []Trigger `json:"triggers,omitempty"`

	// handoff is what happens to new connections while the game is awake. Direct: they go
	// straight to the Servers. Never: they all go through the resolver.
	// +optional
	// +kubebuilder:default=Direct
	Handoff Handoff `json:"handoff,omitempty"`

	// balance decides which Server a new player gets, with handoff Never. Spread, the default:
	// the emptiest. Packed: the fullest that has room.
	// +optional
	Balance Balance `json:"balance,omitempty"`

	// proxyProtocol tells Servers where players really are, and learns it from load balancers
	// in front of the resolver; with handoff Never.
	// +optional
	ProxyProtocol *ProxyProtocol `json:"proxyProtocol,omitempty"`

	// wake is an older place for spec.wake.
	// +optional
	Wake *Wake `json:"wake,omitempty"`

	// hold is an older place for spec.hold.
	// +optional
	// +kubebuilder:default={}
	Hold Hold `json:"hold,omitempty"`
}

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

// GameTypeStatus is what Dormouse observed.
type GameTypeStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is Asleep, Waking, Awake or FallingAsleep, as the ElasticService says.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// address is where players come to: the first name at the front, the load balancer's
	// address or name, or else the Service's name inside the cluster. It is empty while a load
	// balancer has none.
	// +optional
	Address string `json:"address,omitempty"`

	// replicas is the number of Servers, of all revisions, that neither drain nor are being
	// deleted.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is how many of them are Ready or Allocated.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// updatedReplicas is how many of them are of the newest revision.
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

	// selector finds the Pods of all the Servers, as a string.
	// +optional
	Selector string `json:"selector,omitempty"`

	// currentRevision is the last revision that took over completely.
	// +optional
	CurrentRevision *Revision `json:"currentRevision,omitempty"`

	// updateRevision is the revision of the template. While it isn't the currentRevision an
	// update is under way.
	// +optional
	UpdateRevision *Revision `json:"updateRevision,omitempty"`

	// lastProgressTime is when an update last got further, began, or went on after a sleep.
	// +optional
	LastProgressTime *metav1.Time `json:"lastProgressTime,omitempty"`

	// revisions are those that have a Fleet, the newest first, 20 at most.
	// +optional
	// +listType=map
	// +listMapKey=name
	Revisions []RevisionStatus `json:"revisions,omitempty"`

	// collisionCount is how often a Fleet's name was taken. It is part of what the next one's
	// name is made from.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`

	// conditions are Progressing, Updated, Available and ServiceReady, and FilesServed and BackedUp
	// where spec.files and spec.backup are set.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Revision names a version of a GameType's template.
type Revision struct {
	// name is what the name of its Fleet ends with.
	Name string `json:"name"`
	// number counts the revisions. One that comes back gets a new number.
	Number int64 `json:"number"`
}

// RevisionStatus is what became of a version of a GameType's template.
type RevisionStatus struct {
	// name is what the name of its Fleet ends with.
	Name string `json:"name"`
	// fleet is the name of its Fleet.
	Fleet string `json:"fleet"`
	// number counts the revisions.
	Number int64 `json:"number"`
	// replicas is the number of its Servers that neither drain nor are being deleted.
	// +optional
	Replicas int32 `json:"replicas"`
	// ready is how many of them are Ready or Allocated.
	// +optional
	Ready int32 `json:"ready"`
	// draining is the number of its Servers that wait for their players' leave.
	// +optional
	Draining int32 `json:"draining"`
}
