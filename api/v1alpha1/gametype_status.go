package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	// lastProgressTime is when an update last got further, or the spec changed.
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
