package reasons

// Reasons of an Allocation's condition, beyond those of the other kinds.
const (
	// NoServerFree means that no Server has room for what is asked for.
	NoServerFree = "NoServerFree"
	// WaitOver means that no Server had room in the time that the Allocation may wait.
	WaitOver = "WaitOver"
	// TooManyWait means that as many Allocations of the namespace wait as may.
	TooManyWait = "TooManyWait"
	// ServerGone means that the Server, or its Pod, is gone.
	ServerGone = "ServerGone"
	// TimeOver means that the Allocation's ttl is over.
	TimeOver = "TimeOver"
	// GivenTwice means that two leaders gave one Server, and the other Allocation has it.
	GivenTwice = "GivenTwice"
)
