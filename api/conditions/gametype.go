package conditions

// Conditions of a GameType. Each is set on every pass of the controller.
const (
	// Progressing is True while an update gets further and when there is none. It is
	// False when the newest revision hasn't got any further for update.progressDeadline, or its
	// Fleet can't be made; the message tells why. The update goes on trying, and an edit of the
	// template heals it.
	Progressing = "Progressing"

	// Updated is True when all Servers that take players are of the newest revision,
	// or of the template, where it is a Fleet's. It is what a script waits for after a change.
	Updated = "Updated"

	// Available is True when as many Servers are Ready, of whatever revision, as
	// replicas and update.maxUnavailable ask for.
	Available = "Available"

	// ServiceReady is True when the Service and the ElasticService of the GameType's
	// name are its own and work. Somebody else's are left alone, and the message says so.
	ServiceReady = "ServiceReady"
)
