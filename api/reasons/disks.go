package reasons

// Reasons that all have who mount a Server's disks beside its game: its files, Backups and Restores.
const (
	// NoSidecar means that the PodTemplate that says what the sidecar is can't be used.
	NoSidecar = "NoSidecar"
	// NoDisk means that the Server has no storage, or has never run, so that a disk isn't there.
	NoDisk = "NoDisk"
	// DisksInUse means that a Pod, the game or a copy has the disks.
	DisksInUse = "DisksInUse"
)
