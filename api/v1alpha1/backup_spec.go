package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

	// keep says which copies stay. All others are deleted, with what they kept.
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
	// claim keeps them on another disk, as archives <server>/<backup>.tar.zst.
	// +optional
	Claim *BackupClaim `json:"claim,omitempty"`
	// bucket keeps them in a bucket of an S3-compatible service, as objects
	// <prefix><namespace>/<server>/<backup>.tar.zst.
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
