package v1alpha1

// Conditions of a Server. Each is set on every pass of the controller. Ready is
// True when the game takes players.
const (
	// ConditionDeletionAllowed is True when the Server may be deleted now, and
	// says what it waits for when it is False.
	ConditionDeletionAllowed = "DeletionAllowed"

	// ConditionHealthy is False when the game runs and is taken for broken, and
	// Unknown while no game runs.
	ConditionHealthy = "Healthy"
)

// Reasons of a Server's conditions.
const (
	// ReasonPending says that the Pod has no node yet.
	ReasonPending = "Pending"
	// ReasonStarting says that the game doesn't take players yet.
	ReasonStarting = "Starting"
	// ReasonDraining says that the game gets no new players.
	ReasonDraining = "Draining"
	// ReasonStopped says that spec.running is false.
	ReasonStopped = "Stopped"
	// ReasonUnhealthy says that the game is taken for broken.
	ReasonUnhealthy = "Unhealthy"
	// ReasonBackoff says that the last Pods ended early and the next one waits.
	ReasonBackoff = "Backoff"
	// ReasonHostPortTaken says that the host port is taken on every node that
	// the Pod could have.
	ReasonHostPortTaken = "HostPortTaken"
	// ReasonNodeSilent says that the Pod's node doesn't answer just now.
	ReasonNodeSilent = "NodeSilent"
	// ReasonNodeLost says that the Pod's node hasn't answered for so long that it
	// counts as lost.
	ReasonNodeLost = "NodeLost"
	// ReasonPodExists says that a Pod which isn't the Server's has its name.
	ReasonPodExists = "PodExists"
	// ReasonNoPlayers says that nobody plays.
	ReasonNoPlayers = "NoPlayers"
	// ReasonPlayers says that somebody plays.
	ReasonPlayers = "Players"
	// ReasonAllocated says that the game is Allocated.
	ReasonAllocated = "Allocated"
	// ReasonGameAllows says that the game itself allows it.
	ReasonGameAllows = "GameAllows"
	// ReasonGameDenies says that the game itself denies it.
	ReasonGameDenies = "GameDenies"
	// ReasonNotReported says that the game has said nothing, and deletion.unreported
	// decides.
	ReasonNotReported = "NotReported"
	// ReasonNotRunning says that no game runs.
	ReasonNotRunning = "NotRunning"
	// ReasonWaitingForSidecar says that the sidecar hasn't yet answered to the
	// Server's deletion.
	ReasonWaitingForSidecar = "WaitingForSidecar"
)

// Reasons of a Fleet's condition Ready beyond those.
const (
	// ReasonServersMissing says that there are fewer Servers ready than asked for.
	ReasonServersMissing = "ServersMissing"
	// ReasonServerRefused says that the API server refuses the Servers.
	ReasonServerRefused = "ServerRefused"
	// ReasonOnDelete says that Servers of an earlier template stay, because
	// updateStrategy is OnDelete.
	ReasonOnDelete = "OnDelete"
)
