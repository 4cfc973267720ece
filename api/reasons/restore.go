package reasons

// Reasons of a Restore's condition Complete, beyond those of a Backup's.
const (
	// BackupNotComplete means that the Backup isn't there, or has no copy.
	BackupNotComplete = "BackupNotComplete"
	// ServerUnknown means that there is no such Server with disks.
	ServerUnknown = "ServerUnknown"
	// Preparing means that the disks are taken, and that nothing of them was written.
	Preparing = "Preparing"
	// Restoring means that the disks are written.
	Restoring = "Restoring"
	// Restored means that the disks have what the Backup has.
	Restored = "Restored"
	// RestoreFailed means that it failed; the disks are as they were.
	RestoreFailed = "RestoreFailed"
)
