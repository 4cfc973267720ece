package reasons

// Reasons of a GameType's conditions, beyond those of the other kinds.
const (
	// Updated means that all Servers which take players are of the newest
	// revision.
	Updated = "Updated"
	// Undone means that all Servers which take players are of the revision that
	// the annotation UndoToAnnotation names.
	Undone = "Undone"
	// RevisionUnknown means that the annotation UndoToAnnotation names a revision that
	// there isn't.
	RevisionUnknown = "RevisionUnknown"
	// Updating means that an update is under way.
	Updating = "Updating"
	// Asleep means that no Servers are asked for.
	Asleep = "Asleep"
	// DeadlineExceeded means that an update has got no further for too long.
	DeadlineExceeded = "DeadlineExceeded"
	// FleetRefused means that the API server refuses the new revision's Fleet.
	FleetRefused = "FleetRefused"
	// ServiceRefused means that the API server refuses the Service or the
	// ElasticService.
	ServiceRefused = "ServiceRefused"
	// NoPorts means that the template has no ports that a Service can have.
	NoPorts = "NoPorts"
)
