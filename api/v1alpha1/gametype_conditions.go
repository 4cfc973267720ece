package v1alpha1

// Conditions of a GameType. Each is set on every pass of the controller.
const (
	// ConditionProgressing is True while an update gets further and when there is
	// none. It is False when the newest revision hasn't got any further for
	// update.progressDeadline, or its Fleet can't be made; the message says why.
	// The update goes on trying, and an edit of the template heals it.
	ConditionProgressing = "Progressing"

	// ConditionUpdated is True when all Servers that take players are of the
	// newest revision, or of the template, where it is a Fleet's. It is what a script
	// waits for after a change.
	ConditionUpdated = "Updated"

	// ConditionAvailable is True when as many Servers are Ready, of whatever
	// revision, as replicas and update.maxUnavailable ask for.
	ConditionAvailable = "Available"

	// ConditionServiceReady is True when the Service and the ElasticService of the
	// GameType's name are its own and work. Somebody else's are left alone, and the
	// message says so.
	ConditionServiceReady = "ServiceReady"
)

// Reasons of a GameType's conditions beyond those of the other kinds.
const (
	// ReasonUpdated says that all Servers which take players are of the newest
	// revision.
	ReasonUpdated = "Updated"
	// ReasonUndone says that all Servers which take players are of the revision that
	// the annotation UndoToAnnotation names.
	ReasonUndone = "Undone"
	// ReasonRevisionUnknown says that the annotation UndoToAnnotation names a revision that
	// there isn't.
	ReasonRevisionUnknown = "RevisionUnknown"
	// ReasonUpdating says that an update is under way.
	ReasonUpdating = "Updating"
	// ReasonAsleep says that no Servers are asked for.
	ReasonAsleep = "Asleep"
	// ReasonDeadlineExceeded says that an update has got no further for too long.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonFleetRefused says that the API server refuses the new revision's Fleet.
	ReasonFleetRefused = "FleetRefused"
	// ReasonServiceRefused says that the API server refuses the Service or the
	// ElasticService.
	ReasonServiceRefused = "ServiceRefused"
	// ReasonNoPorts says that the template has no ports that a Service can have.
	ReasonNoPorts = "NoPorts"
)
