package conditions

// Conditions of a GameAutoscaler. Each is set on every pass of the controller, to Unknown where
// it could not be observed.
const (
	// Active is True while the policies decide about the target's replicas. It is False while
	// the target sleeps, when it isn't there, when somebody else sets its replicas, and when a
	// policy can't be evaluated: its reason and message are then those of that.
	Active = "Active"

	// AbleToScale is True when replicas can be changed. Its reason and message tell what makes
	// a change wait: a stabilization window, a cooldown, or what keeps Servers from being taken
	// away. It is False when the API server refuses the change.
	AbleToScale = "AbleToScale"

	// Limited is True when there would be more or fewer Servers, but for minReplicas,
	// maxReplicas or a maxStep. Its reason tells which.
	Limited = "Limited"
)
