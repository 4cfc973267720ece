package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Backup is one copy of a Server's disks. Dormouse makes them as spec.backup of the Server or its
// GameType says, and a person makes one by hand. Deleting it deletes the copy, unless its annotation
// dormouse.dev/keep-archive is "true". It outlives its Server.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=backups,shortName=bk,categories=dormouse
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.server`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Files",type=integer,JSONPath=`.status.files`
// +kubebuilder:printcolumn:name="Taken",type=date,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 110",message="metadata.name must have at most 110 characters"
type Backup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is copied, and can't be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a Backup can't be changed; make another Backup"
	Spec BackupRequest `json:"spec"`

	// status is what became of it.
	// +optional
	// +structType=atomic
	Status BackupStatus `json:"status,omitempty"`
}

// BackupList is a list of Backups.
//
// +kubebuilder:object:root=true
type BackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Backup `json:"items"`
}

// BackupRequest says what is copied.
type BackupRequest struct {
	// server is the name of the Server: one of its own, or a place of a GameType's, such as
	// survival-0. All of its disks are copied.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="server must be a Server's name: lower case letters, digits, '-' and '.'"
	Server string `json:"server"`
}

// CopyPhase is how far a Backup or a Restore is.
type CopyPhase string

const (
	// CopyPending means that it waits: until the game's Pod is gone, for example.
	CopyPending CopyPhase = "Pending"
	// CopyRunning means that files are being copied.
	CopyRunning CopyPhase = "Running"
	// CopyComplete means that it succeeded.
	CopyComplete CopyPhase = "Complete"
	// CopyFailed means that it didn't, and isn't tried again.
	CopyFailed CopyPhase = "Failed"
	// CopyCanceled means that it was given up because somebody woke the game.
	CopyCanceled CopyPhase = "Canceled"
)

// BackupStatus is what became of a Backup.
type BackupStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is Pending, Running, Complete, Failed or Canceled.
	// +optional
	Phase CopyPhase `json:"phase,omitempty"`

	// startTime is when the copying began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the Backup succeeded, failed or was given up.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// to is where the copy is kept, as the Server's spec.backup.to had it then.
	// +optional
	To *BackupTarget `json:"to,omitempty"`
	// disks are the names of the disks that were copied.
	// +optional
	// +listType=atomic
	Disks []string `json:"disks,omitempty"`
	// size is how large the archive is, rounded up to a whole number of Ki, Mi or Gi; of a snapshot, how large a disk made from it must be.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// files is how many files, directories and links the archive has.
	// +optional
	Files int64 `json:"files,omitempty"`
	// sha256 is the archive's, in hexadecimal.
	// +optional
	SHA256 string `json:"sha256,omitempty"`
	// atRest is whether nothing writes to the disks meanwhile, as far as Dormouse knows.
	// +optional
	AtRest bool `json:"atRest,omitempty"`
	// runAs is whose the archive is: the game's user and groups then, as far as its template says.
	// +optional
	RunAs *BackupRunAs `json:"runAs,omitempty"`

	// conditions is Complete: whether the copy is there, and why not.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BackupRunAs is whose an archive is.
type BackupRunAs struct {
	// user is the number of the user.
	// +optional
	User *int64 `json:"user,omitempty"`
	// group is the number of the group.
	// +optional
	Group *int64 `json:"group,omitempty"`
	// fsGroup is the number of the group of the disks.
	// +optional
	FSGroup *int64 `json:"fsGroup,omitempty"`
}

// Restore puts a Backup back on a Server's disks, once. It waits until the Server's Pod is gone, and
// the Server can't start until it is done. What was on the disks stays there, in the directory
// .dormouse-before-<name of the Restore>-<first 8 characters of its UID>, until the Server has been Ready
// and its Pod is gone again.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=restores,shortName=rst,categories=dormouse
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.server`
// +kubebuilder:printcolumn:name="Backup",type=string,JSONPath=`.spec.backup`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Files",type=integer,JSONPath=`.status.files`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 110",message="metadata.name must have at most 110 characters"
type Restore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is put back, and can't be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a Restore can't be changed; make another Restore"
	Spec RestoreSpec `json:"spec"`

	// status is what became of it.
	// +optional
	// +structType=atomic
	Status RestoreStatus `json:"status,omitempty"`
}

// RestoreList is a list of Restores.
//
// +kubebuilder:object:root=true
type RestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Restore `json:"items"`
}

// RestoreSpec says what is put back.
type RestoreSpec struct {
	// server is the name of the Server whose disks are written: one of its own, or a place of a
	// GameType's, such as survival-0. Disks that aren't there are made.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="server must be a Server's name: lower case letters, digits, '-' and '.'"
	Server string `json:"server"`

	// backup is the name of the Backup, which may be another Server's. Disks that it doesn't have
	// stay as they are.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="backup must be a Backup's name: lower case letters, digits, '-' and '.'"
	Backup string `json:"backup"`
}

// RestoreStatus is what became of a Restore.
type RestoreStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is Pending, Running, Complete or Failed. After a failure the disks are as they were.
	// +optional
	Phase CopyPhase `json:"phase,omitempty"`

	// startTime is when the copying began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the Restore succeeded or failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// disks are the names of the disks that were written.
	// +optional
	// +listType=atomic
	Disks []string `json:"disks,omitempty"`
	// files is how many files, directories and links were written.
	// +optional
	Files int64 `json:"files,omitempty"`
	// previousKept is whether what was on the disks before is still there.
	// +optional
	PreviousKept bool `json:"previousKept,omitempty"`
	// serverReadyTime is when the Server was first seen Ready after that.
	// +optional
	ServerReadyTime *metav1.Time `json:"serverReadyTime,omitempty"`

	// conditions is Complete: whether the disks have what the Backup has, and why not.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
