package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
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
	// archive is the archive's path: on the disk for copies, or in the bucket after prefix and namespace. It is
	// empty for snapshots, and for a Backup of an earlier version, whose archive is <server>/<backup>.tar.zst.
	// +optional
	Archive string `json:"archive,omitempty"`
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
	// pod is what the Pods that write the disks take from the game's: its user and groups, and which
	// nodes it may be on. By it the disks can be made whole once the Server is gone. It is there while
	// phase is Running.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Pod *corev1.PodSpec `json:"pod,omitempty"`
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

// BackupSpec is when a Server's disks are copied, where the copies are kept, and for how long. Each
// copy is a Backup, named after the Server and the time.
type BackupSpec struct {
	// to is where the copies are kept.
	// +required
	To BackupTarget `json:"to"`

	// onSleep makes a copy each time that the game was awake and its Pod is gone: because it
	// sleeps, or somebody stopped it.
	// +optional
	// +kubebuilder:default=true
	OnSleep *bool `json:"onSleep,omitempty"`

	// schedule makes copies at times, too.
	// +optional
	Schedule *BackupSchedule `json:"schedule,omitempty"`

	// whileRunning is what becomes of a scheduled copy, or one that a person asks for, while the
	// game runs. Wait, the default, waits until its Pod is gone. Copy reads the files while the
	// game writes them: such a copy may have half of a change, and says so.
	// +optional
	// +kubebuilder:default=Wait
	WhileRunning BackupWhileRunning `json:"whileRunning,omitempty"`

	// onWake is what becomes of a copy that is being made when somebody wakes the game. Cancel,
	// the default, gives it up, and it is made at the next sleep. Wait lets players wait until it
	// is done.
	// +optional
	// +kubebuilder:default=Cancel
	OnWake BackupOnWake `json:"onWake,omitempty"`

	// keep says which copies stay. All others are deleted, with what they kept. Those from before the oldest of the
	// Server's disks was made count by themselves.
	// +optional
	// +kubebuilder:default={}
	Keep BackupRetention `json:"keep,omitempty"`

	// timeout bounds how long a copy or a restoration may take; from 1m to 24h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="timeout must be a duration from 1m to 24h such as 1h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// BackupWhileRunning is what becomes of a copy while the game runs.
// +kubebuilder:validation:Enum=Wait;Copy
type BackupWhileRunning string

const (
	// BackupWaits waits until the game's Pod is gone.
	BackupWaits BackupWhileRunning = "Wait"
	// BackupCopies copies files that may change meanwhile.
	BackupCopies BackupWhileRunning = "Copy"
)

// BackupOnWake is what becomes of a copy when its game is woken.
// +kubebuilder:validation:Enum=Cancel;Wait
type BackupOnWake string

const (
	// BackupOnWakeCancel gives the copy up.
	BackupOnWakeCancel BackupOnWake = "Cancel"
	// BackupOnWakeWait has players wait.
	BackupOnWakeWait BackupOnWake = "Wait"
)

// BackupSchedule is when copies are made.
type BackupSchedule struct {
	// cron is when: five fields, for minute, hour, day of the month, month and day of the week, as
	// in "0 4 * * *". Of times that passed while nothing could be done one is made up for.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-0-9*,/]+ [-0-9*,/]+ [-0-9*,/]+ [-0-9A-Za-z*,/]+ [-0-9A-Za-z*,/]+$')",message="cron must have five fields with one space between them, for minute, hour, day of the month, month and day of the week, such as 0 4 * * *"
	Cron string `json:"cron"`

	// timeZone is whose clocks cron goes by: a name of the IANA database such as Europe/Berlin.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][-+A-Za-z0-9_]*(/[A-Za-z0-9][-+A-Za-z0-9_]*)*$') && self != 'Local' && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",message="timeZone must be a name of the IANA database such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`
}

// BackupRetention says which copies stay. One that counts for several of its numbers is kept once.
// The youngest that succeeded always stays, and so does the youngest of disks at rest.
type BackupRetention struct {
	// last is how many of the youngest stay.
	// +optional
	// +kubebuilder:default=7
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Last int32 `json:"last,omitempty"`
	// daily is for how many days the last one of each day stays, by UTC; days without one don't
	// count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=366
	Daily int32 `json:"daily,omitempty"`
	// weekly is for how many weeks, from Monday on, the last one of each stays.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=520
	Weekly int32 `json:"weekly,omitempty"`
}

// BackupTarget is where copies are kept: exactly one of its fields.
//
// +kubebuilder:validation:XValidation:rule="(has(self.claim) ? 1 : 0) + (has(self.bucket) ? 1 : 0) + (has(self.volumeSnapshot) ? 1 : 0) == 1",message="to needs exactly one of claim, bucket and volumeSnapshot"
type BackupTarget struct {
	// claim keeps them on another disk, as archives <server>/<backup>-<first 8 characters of the Backup's UID>.tar.zst.
	// +optional
	Claim *BackupClaim `json:"claim,omitempty"`
	// bucket keeps them in a bucket of an S3-compatible service, as objects
	// <prefix><namespace>/<server>/<backup>-<first 8 characters of the Backup's UID>.tar.zst.
	// +optional
	Bucket *BackupBucket `json:"bucket,omitempty"`
	// volumeSnapshot has the disk's own driver make a snapshot of it, where the cluster has the
	// snapshot API.
	// +optional
	VolumeSnapshot *BackupSnapshot `json:"volumeSnapshot,omitempty"`
}

// BackupClaim is a disk for copies.
type BackupClaim struct {
	// name is the PersistentVolumeClaim's, of the same namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name must be the name of a PersistentVolumeClaim: lower case letters, digits, '-' and '.'"
	Name string `json:"name"`
}

// BackupBucket is a bucket for copies.
type BackupBucket struct {
	// endpoint is the service's URL, such as https://s3.example.com.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[A-Za-z0-9._:\\\\[\\\\]-]+/?$')",message="endpoint must be a URL with a host and no path, such as https://s3.example.com"
	Endpoint string `json:"endpoint"`
	// name is the bucket's. It must exist.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9][-a-z0-9.]*[a-z0-9]$')",message="name must be the name of a bucket: lower case letters, digits, '-' and '.'"
	Name string `json:"name"`
	// region is the bucket's.
	// +optional
	// +kubebuilder:default=us-east-1
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// prefix begins the objects' names; a / at its end is a part of it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.contains('..')",message="prefix must not begin with / or have .. in it"
	Prefix string `json:"prefix,omitempty"`
	// secret is the name of a Secret of the namespace with the keys accessKeyID and
	// secretAccessKey, and, where the service's certificate is its own, ca.crt. Dormouse never reads
	// it: the pods that copy do.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="secret must be the name of a Secret: lower case letters, digits, '-' and '.'"
	Secret string `json:"secret"`
}

// BackupSnapshot has the disk's own driver make a snapshot.
type BackupSnapshot struct {
	// className is the VolumeSnapshotClass; the driver's default one if it is absent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClassName *string `json:"className,omitempty"`
}

// DiskSource is what a new disk begins with: exactly one of its fields.
//
// +kubebuilder:validation:XValidation:rule="has(self.server) != has(self.backup)",message="from needs exactly one of server and backup"
type DiskSource struct {
	// server is the name of another Server of the namespace, asleep or stopped, whose disk of the
	// same name is copied.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="server must be a Server's name: lower case letters, digits, '-' and '.'"
	Server string `json:"server,omitempty"`
	// backup is the name of a Backup of the namespace that has a disk of the same name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="backup must be a Backup's name: lower case letters, digits, '-' and '.'"
	Backup string `json:"backup,omitempty"`
}
