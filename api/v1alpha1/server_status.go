package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServerState is where a Server is in its life.
type ServerState string

const (
	// ServerPending means that the Server's Pod has no node yet, or isn't there.
	ServerPending ServerState = "Pending"
	// ServerStarting means that the Pod has a node and the game doesn't take players yet.
	ServerStarting ServerState = "Starting"
	// ServerReady means that the game takes players.
	ServerReady ServerState = "Ready"
	// ServerAllocated means that an Allocation has the Server, or that somebody asked for the
	// game by name, through the SDK: no scale-down takes it.
	ServerAllocated ServerState = "Allocated"
	// ServerReserved means that the game is Allocated until a time that it named, see
	// status.game.reservedUntil.
	ServerReserved ServerState = "Reserved"
	// ServerDraining means that the game gets no new players and goes when those it has are
	// gone.
	ServerDraining ServerState = "Draining"
	// ServerStopped means that the Server was told to have no Pod, or sleeps.
	ServerStopped ServerState = "Stopped"
	// ServerUnhealthy means that the game runs and is taken for broken.
	ServerUnhealthy ServerState = "Unhealthy"
)

// TakesPlayers reports whether a Server in this state is Ready, or Allocated or Reserved.
func (s ServerState) TakesPlayers() bool {
	return s == ServerReady || s == ServerAllocated || s == ServerReserved
}

// ServerStatus is what Dormouse observed and what the game said.
type ServerStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// state is Pending, Starting, Ready, Allocated, Reserved, Draining, Stopped or Unhealthy.
	// +optional
	State ServerState `json:"state,omitempty"`

	// allocated is set while an Allocation has the Server, or places on it. state is Allocated also
	// where the game itself said so.
	// +optional
	Allocated bool `json:"allocated,omitempty"`

	// replicas is 1 while the Server has a Pod, and 0 else.
	// +optional
	Replicas int32 `json:"replicas"`

	// selector finds the Server's Pod, as a string: dormouse.dev/server=NAME. It isn't there for a Server
	// in a Fleet, whose own selector finds all of its Pods.
	// +optional
	Selector string `json:"selector,omitempty"`

	// players is how many play, as last reported.
	// +optional
	Players *PlayersStatus `json:"players,omitempty"`

	// deletionAllowed is whether the Server may be deleted now, as last reported.
	// +optional
	DeletionAllowed bool `json:"deletionAllowed"`

	// game is what the game's sidecar last said beyond the players.
	// +optional
	Game *GameStatus `json:"game,omitempty"`

	// counters are the game's counters.
	// +optional
	Counters map[string]Counter `json:"counters,omitempty"`

	// lists are the game's lists.
	// +optional
	Lists map[string]List `json:"lists,omitempty"`

	// podName is the name of the Server's Pod.
	// +optional
	PodName string `json:"podName,omitempty"`

	// podIP is the Pod's address inside the cluster.
	// +optional
	PodIP string `json:"podIP,omitempty"`

	// nodeName is the node that the Pod is on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// address is where ports are reached: the node's ExternalIP, or else its
	// InternalIP, if any port is exposed; else the Pod's own, inside the cluster.
	// +optional
	Address string `json:"address,omitempty"`

	// addresses are all of those, address first: the node's, with its names, or the Pod's, of
	// each IP family.
	// +optional
	// +listType=atomic
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`

	// ports are the ports at address: the exposed ones with their numbers on the
	// node, or, where none is exposed, all with their containerPort.
	// +optional
	// +listType=atomic
	Ports []ServerPortStatus `json:"ports,omitempty"`

	// failures is how many Pods of this Server ended or broke since it last was well for ten
	// minutes. The next Pod comes the later the more there were.
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// lastFailureTime is when the last of them did.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// conditions are Ready, DeletionAllowed and Healthy, Updated where the Server is in no Fleet, and
	// FilesServed and BackedUp where spec.files and spec.backup are set. Those without an observedGeneration are of the status' own.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PlayersStatus is how many play.
type PlayersStatus struct {
	// current is how many play.
	Current int32 `json:"current"`
	// capacity is how many may play at once; 0 if that isn't known.
	// +optional
	Capacity int32 `json:"capacity,omitempty"`
	// ids are the players' names or numbers, where the game reports them.
	// +optional
	// +listType=atomic
	IDs []string `json:"ids,omitempty"`
}

// GameState is what a game says of itself.
type GameState string

const (
	// GameStarting means that the game doesn't take players yet.
	GameStarting GameState = "Starting"
	// GameReady means that the game takes players.
	GameReady GameState = "Ready"
	// GameAllocated means that the game was asked for by name.
	GameAllocated GameState = "Allocated"
	// GameReserved means that the game is Allocated until a time it named, and Ready after
	// that.
	GameReserved GameState = "Reserved"
	// GameShutdown means that the game asks for its own end.
	GameShutdown GameState = "Shutdown"
	// GameUnhealthy means that the game answers no probe or sends no ping any more, or says that it has
	// failed.
	GameUnhealthy GameState = "Unhealthy"
)

// TakesPlayers reports whether a game in this state is Ready, or Allocated or Reserved.
func (s GameState) TakesPlayers() bool {
	return s == GameReady || s == GameAllocated || s == GameReserved
}

// GameStatus is what a game's sidecar last said beyond the players.
type GameStatus struct {
	// state is Starting, Ready, Allocated, Reserved, Shutdown or Unhealthy.
	State GameState `json:"state"`
	// since is when that state was first reported.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// phase is what the game last said of its state, while that is Unhealthy, or Shutdown because nobody
	// plays: Ready, Allocated or Reserved, or Starting where it has said nothing of it. A sidecar that starts
	// again goes on with it.
	// +optional
	Phase GameState `json:"phase,omitempty"`
	// started is when the game's process was started that said so, by the node's clock. A sidecar that
	// starts again goes on with nothing that an earlier process said, but that the game ends.
	// +optional
	Started *metav1.Time `json:"started,omitempty"`
	// countsPlayers is true where a game that is probed has itself said how many play, which comes before
	// what its probe says; and of other games where one is leaving.
	// +optional
	CountsPlayers bool `json:"countsPlayers,omitempty"`
	// leaving is true where the game has said that it ends once nobody plays. In state Shutdown it is true
	// where the game asked for that without being told to, which holds for its next process, too.
	// +optional
	Leaving bool `json:"leaving,omitempty"`
	// podUID is the UID of the Pod whose sidecar said so.
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// message explains in a sentence why the game is Unhealthy.
	// +optional
	Message string `json:"message,omitempty"`
	// reported is true once the game or its probe has said anything of itself.
	// +optional
	Reported bool `json:"reported,omitempty"`
	// permission is the game's own word on whether it may be deleted, where it has given one.
	// +optional
	Permission DeletionPermission `json:"permission,omitempty"`
	// reservedUntil is when a reservation ends.
	// +optional
	ReservedUntil *metav1.Time `json:"reservedUntil,omitempty"`
	// shutdownSeen is true once the sidecar has said that it knows of the Server's deletion:
	// deletionAllowed is its answer to that from then on. It stays true, though the Server is wanted again,
	// where the game ends because of it.
	// +optional
	ShutdownSeen bool `json:"shutdownSeen,omitempty"`
	// instance and sequence name the report that last changed any of this, so that of two
	// operator replicas the one with the older report doesn't write over the other.
	// +optional
	Instance string `json:"instance,omitempty"`
	// sequence is that report's number among those of its instance.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`
}

// ServerPortStatus is a port as it is.
type ServerPortStatus struct {
	// name is the port's name in the spec.
	Name string `json:"name"`
	// port is the number to connect to at the Server's address.
	Port int32 `json:"port"`
	// protocol is TCP, UDP or TCPUDP.
	Protocol ServerProtocol `json:"protocol"`
}
