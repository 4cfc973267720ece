package reasons

// Reasons of a Server's conditions.
const (
	// Pending means that the Pod has no node yet.
	Pending = "Pending"
	// Starting means that the game doesn't take players yet.
	Starting = "Starting"
	// SlowStart means that the game runs and doesn't take players yet, for longer
	// than most do; the message says what is awaited.
	SlowStart = "SlowStart"
	// PodDeleted means that the Pod was deleted, and another one follows.
	PodDeleted = "PodDeleted"
	// Draining means that the game gets no new players.
	Draining = "Draining"
	// Stopped means that spec.running is false, or spec.replicas 0.
	Stopped = "Stopped"
	// Unhealthy means that the game is taken for broken.
	Unhealthy = "Unhealthy"
	// Backoff means that the last Pods ended early and the next one waits.
	Backoff = "Backoff"
	// HostPortTaken means that the host port is taken on every node that
	// the Pod could have.
	HostPortTaken = "HostPortTaken"
	// NodeSilent means that the Pod's node doesn't answer just now.
	NodeSilent = "NodeSilent"
	// NodeLost means that the Pod's node hasn't answered for so long that it
	// counts as lost.
	NodeLost = "NodeLost"
	// DisksBusy means that the Pod waits for its disks: they are being copied, or
	// what they begin with isn't there yet.
	DisksBusy = "DisksBusy"
	// PodExists means that a Pod which isn't the Server's has its name.
	PodExists = "PodExists"
	// NoPlayers means that nobody plays.
	NoPlayers = "NoPlayers"
	// Players means that somebody plays.
	Players = "Players"
	// Allocated means that the game is Allocated.
	Allocated = "Allocated"
	// GameAllows means that the game itself allows it.
	GameAllows = "GameAllows"
	// GameDenies means that the game itself denies it.
	GameDenies = "GameDenies"
	// NotReported means that the game has said nothing, and deletion.unreported
	// decides.
	NotReported = "NotReported"
	// NotRunning means that no game runs.
	NotRunning = "NotRunning"
	// WaitingForSidecar means that the sidecar hasn't yet answered to the
	// Server's deletion.
	WaitingForSidecar = "WaitingForSidecar"
)
