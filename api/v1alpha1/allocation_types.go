package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Allocation gives a matchmaker one Server, or places on one, which nobody else gets. It is made,
// gets its answer in the status, and holds the Server until it is deleted: meanwhile the Server is
// Allocated, so that no scale-down, update or sleep takes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=allocations,shortName=alloc,categories=dormouse
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.status.serverName`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.status.ports[0].port`
// +kubebuilder:printcolumn:name="Players",type=integer,priority=1,JSONPath=`.spec.players`
// +kubebuilder:printcolumn:name="Node",type=string,priority=1,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Allocated")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Allocation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for. Only its ttl may be changed.
	// +required
	Spec AllocationSpec `json:"spec"`

	// status is the answer.
	// +optional
	// +structType=atomic
	Status AllocationStatus `json:"status,omitempty"`
}

// AllocationList is a list of Allocations.
//
// +kubebuilder:object:root=true
type AllocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Allocation `json:"items"`
}

// AllocationSpec says what is asked for.
//
// +kubebuilder:validation:XValidation:rule="has(self.targetRef) || has(self.selector)",message="an Allocation needs a targetRef, a selector, or both"
// +kubebuilder:validation:XValidation:rule="has(self.targetRef) == has(oldSelf.targetRef) && (!has(self.targetRef) || self.targetRef == oldSelf.targetRef)",message="targetRef can't be changed; make another Allocation"
// +kubebuilder:validation:XValidation:rule="has(self.selector) == has(oldSelf.selector) && (!has(self.selector) || self.selector == oldSelf.selector)",message="selector can't be changed; make another Allocation"
// +kubebuilder:validation:XValidation:rule="self.players == oldSelf.players",message="players can't be changed; make another Allocation"
// +kubebuilder:validation:XValidation:rule="self.preference == oldSelf.preference",message="preference can't be changed; make another Allocation"
// +kubebuilder:validation:XValidation:rule="self.wait == oldSelf.wait",message="wait can't be changed; make another Allocation"
type AllocationSpec struct {
	// targetRef names the GameType or the Fleet, in the same namespace, whose Servers count. One
	// that sleeps is woken.
	// +optional
	TargetRef *AllocationTarget `json:"targetRef,omitempty"`

	// selector narrows down which Servers of the target count; without a target, which of the
	// namespace. Without a target nothing is woken.
	// +optional
	Selector *AllocationSelector `json:"selector,omitempty"`

	// players is how many places are needed on one Server, which may be shared with other
	// Allocations that ask for places; up to 10000. It takes a Server whose capacity is known and
	// has room for so many beside those who play and those who are expected. 0, the default, asks
	// for a whole Server that nobody plays on and no other Allocation has.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Players int32 `json:"players,omitempty"`

	// preference says which of several Servers is taken.
	// +optional
	// +kubebuilder:default={}
	Preference AllocationPreference `json:"preference,omitempty"`

	// wait is how long the Allocation may wait, Pending, while no Server has room; up to 1h. 0s,
	// the default, doesn't wait: it is Refused at once. The target is woken either way.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) <= duration('1h')",message="wait must be a duration up to 1h such as 30s"
	Wait *metav1.Duration `json:"wait,omitempty"`

	// ttl is how long the Allocation holds its Server at most, from the time that it got it: from
	// 1s to 168h. Then it is Expired, and the Server is given to others. It may be changed. 0s, the
	// default, is no end: the Allocation holds the Server until it is deleted or the Server is
	// gone, so a matchmaker that may forget one should set a ttl.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && (duration(self) == duration('0s') || duration(self) >= duration('1s') && duration(self) <= duration('168h'))",message="ttl must be 0s, or a duration from 1s to 168h such as 2h"
	TTL *metav1.Duration `json:"ttl,omitempty"`
}

// AllocationTarget names whose Servers count.
type AllocationTarget struct {
	// kind is GameType, the default, or Fleet.
	// +optional
	// +kubebuilder:default=GameType
	Kind AllocationTargetKind `json:"kind,omitempty"`

	// name is the target's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name must be an object's name: lower case letters, digits, '-' and '.'"
	Name string `json:"name"`
}

// AllocationTargetKind is the kind of what an Allocation is of.
// +kubebuilder:validation:Enum=GameType;Fleet
type AllocationTargetKind string

const (
	// AllocationTargetGameType is a GameType.
	AllocationTargetGameType AllocationTargetKind = "GameType"
	// AllocationTargetFleet is a Fleet.
	AllocationTargetFleet AllocationTargetKind = "Fleet"
)

// AllocationSelector selects Servers by their labels.
type AllocationSelector struct {
	// matchLabels are labels that a Server must have, those included that its game has set through
	// the SDK; from 1 to 16.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="a label's name has at most 317 characters, and its value 63"
	MatchLabels map[string]LabelValue `json:"matchLabels"`
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
type LabelValue string

// AllocationPreference says which of several Servers is taken. It only prefers: a Server that doesn't
// fit it is better than none. One that has waited gets the first Server that has room.
type AllocationPreference struct {
	// strategy is Packed, the default: the Server that has the least room, or one on the node that
	// has the most allocated ones, so that others become empty; or Distributed, the opposite.
	// +optional
	// +kubebuilder:default=Packed
	Strategy AllocationStrategy `json:"strategy,omitempty"`

	// near is a label of the nodes whose Servers come first.
	// +optional
	Near *AllocationNear `json:"near,omitempty"`
}

// AllocationStrategy is how Allocations are laid out.
// +kubebuilder:validation:Enum=Packed;Distributed
type AllocationStrategy string

const (
	// AllocationPacked fills what is in use.
	AllocationPacked AllocationStrategy = "Packed"
	// AllocationDistributed spreads out.
	AllocationDistributed AllocationStrategy = "Distributed"
)

// AllocationNear is a label of nodes.
type AllocationNear struct {
	// key is the label's name, such as topology.kubernetes.io/region.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`
	// value is the label's value.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value"`
}

// AllocationState is what became of an Allocation.
type AllocationState string

const (
	// AllocationPending means that it waits for a Server.
	AllocationPending AllocationState = "Pending"
	// AllocationAllocated means that it has one, or places on one.
	AllocationAllocated AllocationState = "Allocated"
	// AllocationRefused means that there was none, within the time that it may wait. It never gets
	// one.
	AllocationRefused AllocationState = "Refused"
	// AllocationExpired means that it had one, and its time is over or the Server is gone.
	AllocationExpired AllocationState = "Expired"
)

// AllocationStatus is the answer.
type AllocationStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// state is Pending, Allocated, Refused or Expired. An Allocation that is Refused or Expired
	// holds nothing, and is deleted after an hour.
	// +optional
	State AllocationState `json:"state,omitempty"`

	// serverName is the Server's name.
	// +optional
	ServerName string `json:"serverName,omitempty"`
	// serverUID and podUID distinguish the Server and its Pod from later ones of the name.
	// +optional
	ServerUID string `json:"serverUID,omitempty"`
	// podUID is that of the Server's Pod. With another Pod the Allocation is Expired.
	// +optional
	PodUID string `json:"podUID,omitempty"`

	// address is where players reach the Server, as its own status has it.
	// +optional
	Address string `json:"address,omitempty"`
	// addresses are all of its addresses, address first.
	// +optional
	// +listType=atomic
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// ports are its ports at address.
	// +optional
	// +listType=atomic
	Ports []ServerPortStatus `json:"ports,omitempty"`
	// nodeName is the node that it is on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// allocatedAt is when the Allocation got the Server.
	// +optional
	AllocatedAt *metav1.MicroTime `json:"allocatedAt,omitempty"`
	// finishedAt is when it was Refused or Expired.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// conditions is Allocated: whether the Allocation has a Server, and why not.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
