package reasons

// Reasons of a Server's and a GameType's condition FilesServed beside OK, NameTaken, Refused, Pending
// and those of an ElasticService's condition Ready.
const (
	// DiskInUse means that the game has the disk, which only one Pod may have.
	DiskInUse = "DiskInUse"
)
