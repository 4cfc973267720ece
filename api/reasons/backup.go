package reasons

// Reasons of a Backup's condition, beyond those of the other kinds.
const (
	// Copied means that the copy is there.
	Copied = "Copied"
	// Copying means that files are being copied, or a snapshot is being made.
	Copying = "Copying"
	// SnapshotTaken means that the snapshots have their moment, and aren't ready yet: what changes
	// on the disks from now on isn't in them.
	SnapshotTaken = "SnapshotTaken"
	// CopyFailed means that files couldn't be copied.
	CopyFailed = "CopyFailed"
	// GameWoken means that the copy was given up because somebody woke the game.
	GameWoken = "GameWoken"
	// JobDeleted means that the copy was given up because somebody deleted its Job.
	JobDeleted = "JobDeleted"
	// NoServer means that there is no Server of the name that has disks of its own.
	NoServer = "NoServer"
	// NotAsked means that the Server has no spec.backup, which says where to.
	NotAsked = "NotAsked"
	// TargetIsDisk means that the copies would be kept on one of the disks that are copied.
	TargetIsDisk = "TargetIsDisk"
	// NoSnapshots means that the cluster doesn't have the snapshot API.
	NoSnapshots = "NoSnapshots"
	// EarlierCopy means that another Backup of the Server comes first.
	EarlierCopy = "EarlierCopy"
	// GameFirst means that a game that was kept from starting goes first.
	GameFirst = "GameFirst"
	// Deleted means that the copy was given up because its Backup was deleted.
	Deleted = "Deleted"
)

// Reasons of the condition BackedUp.
const (
	// BackedUp means that all of the last copies succeeded.
	BackedUp = "BackedUp"
	// NoBackup means that there is no copy yet.
	NoBackup = "NoBackup"
)
