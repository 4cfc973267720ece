// Package wellknown has the names that appear on objects in a user's cluster: labels, annotations,
// finalizers and the like.
package wellknown

// Names that appear on objects in a user's cluster. They are part of the API: changing one
// breaks running clusters.
const (
	// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on each
	// EndpointSlice that Dormouse writes. Kubernetes' own controllers leave such slices alone.
	ManagedBy = "dormouse.dev"
	// EndpointSliceController is that value on each EndpointSlice that Kubernetes writes for a Service with a
	// selector.
	EndpointSliceController = "endpointslice-controller.k8s.io"

	// PrivateServiceLabel marks the headless Service that Dormouse keeps beside a user's
	// Service to learn the addresses of its pods. Kubernetes copies the label to that Service's
	// EndpointSlices. Its value is the name of the user's Service.
	PrivateServiceLabel = "dormouse.dev/private-service"

	// FrontLabel is on each EndpointSlice that Dormouse writes for a front; its value is the
	// name of the front's Service.
	FrontLabel = "dormouse.dev/front"

	// AllowedNamespacesAnnotation is on the Service of a front; its value are the names of the
	// other namespaces whose ElasticServices may share it, with commas between them, or * for
	// all. On the Service of a webhook they are those whose GameAutoscalers may ask it.
	AllowedNamespacesAnnotation = "dormouse.dev/allowed-namespaces"

	// TriggerNamespacesAnnotation is on the Service of a Prometheus; its value are the names of
	// the other namespaces whose ElasticServices may have it asked, with commas between them, or
	// * for all. It isn't AllowedNamespacesAnnotation, which gives a Service away as a front.
	TriggerNamespacesAnnotation = "dormouse.dev/trigger-namespaces"

	// PausedByAnnotation is on a ScaledObject of KEDA that Dormouse has paused; its value is the
	// UID of the ElasticService that sleeps.
	PausedByAnnotation = "dormouse.dev/paused-by"

	// ReportKeyAnnotation is on a Server's Pod whose sidecar signs its reports; its value is the
	// ID of the key that the sidecar began with.
	ReportKeyAnnotation = "dormouse.dev/report-key"

	// ReportCredentialAnnotation is on the Pods of the sidecar's PodTemplate; its value says with
	// what the sidecar can show who it is beside a mounted token: Key, if it can sign. Without
	// it each Pod has a token in a volume.
	ReportCredentialAnnotation = "dormouse.dev/report-credential"

	// SidecarStartAnnotation is on the Pods of the sidecar's PodTemplate; its value says when the
	// sidecar may start: AfterGame, if it outlives the game by itself. Without it the sidecar is
	// an init container, which starts before the game and ends after it.
	SidecarStartAnnotation = "dormouse.dev/sidecar-start"

	// RotateReportKeysAnnotation is on the operator's Secret; its value is a time, as in RFC
	// 3339. New Pods get a key for reports that is younger than that.
	RotateReportKeysAnnotation = "dormouse.dev/rotate-report-keys"

	// RevokedReportKeysAnnotation is on the operator's Secret; its value are the IDs of keys for
	// reports that aren't accepted any more, with commas between them.
	RevokedReportKeysAnnotation = "dormouse.dev/revoked-report-keys"

	// TrustedCIDRsAnnotation is on the Service of a front; its value are the networks of the
	// load balancers whose connections begin with a header of the PROXY protocol, with commas
	// between them: 10.0.0.0/8,2001:db8::/32. A connection from there without one is refused.
	TrustedCIDRsAnnotation = "dormouse.dev/proxy-protocol-trusted-cidrs"

	// MaxSessionsPerSourceAnnotation is on the Service of a front; its value is how many
	// connections one address, or one IPv6 network of 64 bits, may have there at once, on each
	// resolver: 1 to 1000000; without a limit where it is absent. It needs a traffic policy
	// Local or TrustedCIDRsAnnotation, without which clients' addresses aren't known.
	MaxSessionsPerSourceAnnotation = "dormouse.dev/max-sessions-per-source"

	// KeepAwakeUntilAnnotation is on an ElasticService or a GameType; its value is a time, as in
	// RFC 3339: 2026-11-27T18:00:00+01:00. Until then the service is kept awake, and is woken
	// where it sleeps.
	KeepAwakeUntilAnnotation = "dormouse.dev/keep-awake-until"

	// KeepAsleepUntilAnnotation is on an ElasticService or a GameType; its value is a time, as in RFC
	// 3339. Until then nothing wakes the service but somebody who scales it: no client, window or
	// other ElasticService, nor KeepAwakeUntilAnnotation. One that is awake isn't put to sleep for
	// it, and nothing keeps it awake but its use.
	KeepAsleepUntilAnnotation = "dormouse.dev/keep-asleep-until"

	// PlayerListLabel is "true" on each ConfigMap that spec.wake.players of an ElasticService
	// may name: the operator sees no other.
	PlayerListLabel = "dormouse.dev/player-list"

	// TriggerAuthLabel is "true" on each Secret that a trigger of an ElasticService may name: the
	// operator sends no other anywhere.
	TriggerAuthLabel = "dormouse.dev/trigger-auth"

	// TriggerServersAnnotation is on such a Secret; its value are the Prometheus servers that it
	// may be shown to, with commas between them: https://prometheus.monitoring.svc:9090. Without it
	// the Secret is for the pods of targets alone.
	TriggerServersAnnotation = "dormouse.dev/trigger-servers"

	// ElasticServiceFinalizer keeps a deleted ElasticService until its Service and workload
	// work without Dormouse.
	ElasticServiceFinalizer = "dormouse.dev/elastic-service"

	// ServerLabel is on the Pod of a Server; its value is the Server's name.
	ServerLabel = "dormouse.dev/server"

	// FilesGate is the scheduling gate of each Pod that serves a Server's files. The operator takes it
	// away while nobody copies the disks.
	FilesGate = "dormouse.dev/disks-free"

	// DisksLabel is on each Pod that mounts a Server's disks: the game's, where it has any, the one
	// that serves its files, and those that copy them; its value is the Server's name.
	DisksLabel = "dormouse.dev/disks"

	// BackupLabel is on the Jobs of a Backup and on their Pods; its value is the Backup's name,
	// shortened where that is too long for a label.
	BackupLabel = "dormouse.dev/backup"

	// BackupCauseLabel is on the Backups that Dormouse makes by itself; its value is sleep or
	// schedule. Those without it are people's, and stay until people delete them.
	BackupCauseLabel = "dormouse.dev/backup-cause"

	// BackupFinalizer keeps a deleted Backup until what it kept is deleted.
	BackupFinalizer = "dormouse.dev/backup"

	// KeepArchiveAnnotation is "true" on a Backup whose archive or VolumeSnapshots stay when it is
	// deleted.
	KeepArchiveAnnotation = "dormouse.dev/keep-archive"

	// RestoreFinalizer keeps a deleted Restore until nothing of it writes to the disks.
	RestoreFinalizer = "dormouse.dev/restore"

	// DiskLabel is on a Server's disk; its value is the disk's name in spec.storage.
	DiskLabel = "dormouse.dev/disk"

	// ServerUIDAnnotation is on a Server's disk; its value is the UID of the Server that it was made
	// for.
	ServerUIDAnnotation = "dormouse.dev/server-uid"

	// FilesLabel is on the Deployment, the Service and the ElasticService that serve a Server's files,
	// and on that Deployment's Pods; its value is the Server's name.
	FilesLabel = "dormouse.dev/files"

	// FilesHashAnnotation is on those three; its value is a hash of what the operator applied.
	FilesHashAnnotation = "dormouse.dev/files-hash"

	// FilesAskedAnnotation is on that Deployment; its value is a hash of what spec.files and the disks ask for, as
	// against what is the sidecar's.
	FilesAskedAnnotation = "dormouse.dev/files-asked"

	// UsedAtAnnotation is on a Server's disk; its value is when a Pod that may write to it was last
	// made, as in RFC 3339.
	UsedAtAnnotation = "dormouse.dev/used-at"

	// FilledAnnotation is on a Server's disk that began with something: its value is what it is
	// from, once all of that is there, and "" until then. It is "nothing" where a game came on the
	// empty disk because spec.storage[].from had been removed.
	FilledAnnotation = "dormouse.dev/filled"

	// CopiesLabel is on a Job that fills a new disk from another Server's; its value is that Server's
	// name. The Server can't start meanwhile.
	CopiesLabel = "dormouse.dev/copies"

	// FleetLabel is on a Fleet's Servers and their Pods; its value is the Fleet's name.
	FleetLabel = "dormouse.dev/fleet"

	// PlaceLabel is on a Fleet's Servers with storage, and on their disks; its value is the
	// number of the place that they have.
	PlaceLabel = "dormouse.dev/place"

	// TrialAnnotation is on a GameType's Fleet whose Servers have storage and that has never had
	// a Ready one; its value is when it got its first place, as in RFC 3339, or failed, once it
	// has given its places back to the revision before.
	TrialAnnotation = "dormouse.dev/trial"

	// GameTypeLabel is on a GameType's Fleets, Service and ElasticService, on the Servers and
	// on their Pods; its value is the GameType's name.
	GameTypeLabel = "dormouse.dev/gametype"

	// CatalogLabel is on a GameType that the REST API offers as a game, with any value.
	CatalogLabel = "dormouse.dev/catalog"

	// HostedGameLabel is on the Server, the Service and the ElasticService of a server of the REST
	// API; its value is the name of the game, which is a GameType's.
	HostedGameLabel = "dormouse.dev/hosted-game"

	// GameTypeFinalizer keeps a deleted GameType, and with it the Service through which its
	// players play, until its Servers are gone.
	GameTypeFinalizer = "dormouse.dev/gametype"

	// RevisionAnnotation is on a GameType's Fleet; its value is the number of its revision.
	RevisionAnnotation = "dormouse.dev/revision"

	// UndoToAnnotation is on a GameType by a person; its value is the name of a revision, which
	// its Servers are of as long as the annotation is there, whatever the template says.
	UndoToAnnotation = "dormouse.dev/undo-to"

	// RestartedAtAnnotation is on a GameType by a person, with any value, such as the time;
	// each other value begins an update. It is on the Servers of that revision, too.
	RestartedAtAnnotation = "dormouse.dev/restarted-at"

	// TemplateHashAnnotation is on a GameType's Fleet and on a Fleet's Server; its value is a
	// hash of the template that it was made from. What the API server stored may differ: a
	// webhook or a policy may have changed it.
	TemplateHashAnnotation = "dormouse.dev/template-hash"

	// StoredHashAnnotation is on such a Fleet where the API server changed the template; its
	// value is a hash of what it stored. Somebody else's later change shows by it.
	StoredHashAnnotation = "dormouse.dev/stored-template-hash"

	// RetiringSinceAnnotation is on the Fleet of an earlier revision; its value is when its
	// last Servers were told to drain, as in RFC 3339.
	RetiringSinceAnnotation = "dormouse.dev/retiring-since"

	// ServiceAnnotationsAnnotation is on a GameType's Service; its value are the names of the
	// annotations that the GameType put there, so that it takes off none of anybody else's.
	ServiceAnnotationsAnnotation = "dormouse.dev/service-annotations"

	// ServiceSettingsAnnotation is on a GameType's Service; its value are the settings that the
	// GameType made there, so that it takes back no others.
	ServiceSettingsAnnotation = "dormouse.dev/service-settings"

	// GameTypeSettingsAnnotation is on a GameType's ElasticService; its value are the
	// settings that the GameType made there, so that it takes back no others: front,
	// keep-awake-until, keep-asleep-until, and ports/ with a port's name.
	GameTypeSettingsAnnotation = "dormouse.dev/gametype-settings"

	// SessionAnnotation is on an Allocation that the REST API has made; its value is the caller's
	// session.
	SessionAnnotation = "dormouse.dev/session"

	// AllocationCallPrefix begins the annotations by which each call of the REST API says that it
	// takes part in an Allocation.
	AllocationCallPrefix = "call.dormouse.dev/"

	// DeletionAllowedLabel is on the Pod of a Server, "true" or "false". A
	// PodDisruptionBudget keeps Pods where it is "false" from being evicted.
	DeletionAllowedLabel = "dormouse.dev/deletion-allowed"

	// PodHashAnnotation is on the Pod of a Server; its value is a hash of the part of the
	// Server's spec that it was made from.
	PodHashAnnotation = "dormouse.dev/pod-hash"

	// RestartAnnotation is "true" on the Pod of a Server once it is told to end because it is of
	// an earlier spec: its game gets no new players from then on.
	RestartAnnotation = "dormouse.dev/restart"

	// DeletionGuardFinalizer keeps a deleted Server until its players allow it.
	DeletionGuardFinalizer = "dormouse.dev/deletion-guard"

	// OwnerGenerationAnnotation is on a Fleet or Server that a wake changed or made together
	// with its owner; its value is the metadata.generation that the owner has since. A
	// controller that knows an older owner waits for that one.
	OwnerGenerationAnnotation = "dormouse.dev/owner-generation"

	// DrainedByAnnotation is on a Server that was drained by a program; its value says by
	// which. A Fleet takes back only those that it drained itself: what a person drained stays
	// drained.
	DrainedByAnnotation = "dormouse.dev/drained-by"

	// DrainedByFleet is the value of DrainedByAnnotation for a Server's Fleet.
	DrainedByFleet = "fleet"

	// GameAPIAnnotation is "true" on a Server whose game may call the REST API for itself: its game
	// and its sidecar get a code. It counts for Pods that are made from then on, and is on those.
	GameAPIAnnotation = "dormouse.dev/game-api"

	// SidecarContainer is the name of the container that Dormouse adds to the Pod of a Server.
	SidecarContainer = "dormouse-sidecar"

	// SDKMetadataPrefix is put before the names of labels and annotations that a game sets
	// through the Agones SDK, as its clients expect.
	SDKMetadataPrefix = "agones.dev/sdk-"

	// TokenAudience is the audience of the service account tokens with which Dormouse's
	// programs know each other.
	TokenAudience = "dormouse.dev"
)

// Bounds of the ports on which resolvers listen for sleeping services. Each service port gets a
// resolver port of its own, which is how one resolver pod stands in for thousands of raw TCP
// and UDP services.
const (
	MinResolverPort = 10000
	MaxResolverPort = 29999
)

// Ports of the sidecar in a game's Pod, which a game can't have. The first two are on loopback
// only.
const (
	SDKGRPCPort = 9357
	SDKHTTPPort = 9358
	SidecarPort = 9359
)

// ReportCredentialKey is ReportCredentialAnnotation's value for a sidecar that can sign.
const ReportCredentialKey = "Key"

// SidecarStartAfterGame is SidecarStartAnnotation's value for a sidecar that outlives the game.
const SidecarStartAfterGame = "AfterGame"

// Names of the sidecar's environment variables: the key with which it signs its reports, and its
// Pod's UID.
const (
	ReportKeyEnv = "DORMOUSE_REPORT_KEY"
	PodUIDEnv    = "DORMOUSE_POD_UID"
)

// GameTypeAnnotations are those that are read of a GameType.
var GameTypeAnnotations = []string{UndoToAnnotation, RestartedAtAnnotation, KeepAwakeUntilAnnotation, KeepAsleepUntilAnnotation}

// ServiceAnnotations are those that are read of a Service that others share.
var ServiceAnnotations = []string{AllowedNamespacesAnnotation, TriggerNamespacesAnnotation, TrustedCIDRsAnnotation, MaxSessionsPerSourceAnnotation}
