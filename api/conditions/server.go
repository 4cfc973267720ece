package conditions

// Conditions of a Server. Each is set on every pass of the controller. Ready is True when the
// game takes players.
const (
	// DeletionAllowed is True when the Server may be deleted now, and says what it
	// waits for when it is False.
	DeletionAllowed = "DeletionAllowed"

	// Healthy is False when the game runs and is taken for broken, and Unknown while
	// no game runs.
	Healthy = "Healthy"
)
