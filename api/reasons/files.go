package reasons

// Reasons of a Server's and a GameType's condition FilesServed beside OK, NameTaken, Refused, Pending
// and those of an ElasticService's condition Ready.
const (
	// NoSidecar means that the PodTemplate that says what the sidecar is can't be used.
	NoSidecar = "NoSidecar"
	// NoDisk means that the Server has no storage, so that there are no files.
	NoDisk = "NoDisk"
	// DiskInUse means that the game has the disk, which only one Pod may have.
	DiskInUse = "DiskInUse"
)
