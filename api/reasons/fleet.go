package reasons

// Reasons of a Fleet's condition Ready, beyond those of a Server.
const (
	// ServersMissing means that there are fewer Servers ready than asked for.
	ServersMissing = "ServersMissing"
	// ServerRefused means that the API server refuses the Servers.
	ServerRefused = "ServerRefused"
	// PlacesInvalid means that spec.places can't be read, or names fewer places than
	// there are to be Servers.
	PlacesInvalid = "PlacesInvalid"
	// OnDelete means that Servers of an earlier template stay, because
	// updateStrategy is OnDelete.
	OnDelete = "OnDelete"
	// AllocatedRemain means that the only Servers of an earlier template are Allocated
	// ones, which stay until their games end.
	AllocatedRemain = "AllocatedRemain"
)
