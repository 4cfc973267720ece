// Package reportapi is the contract between the operator and the sidecars: what
// a sidecar says of its game, and what it is told in return. It holds types and
// names only.
package reportapi

import (
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// ReportPath is where each operator replica takes reports (POST). The caller's
// token must be bound to the Pod of the Server that it reports for.
const ReportPath = "/v1/report"

// HoldTime is how long a report is held that has nothing to be told: a sidecar
// sends the next one when it is answered, or at once when something changed.
const HoldTime = 10 * time.Second

// FreshFor is for how long a report counts.
const FreshFor = 30 * time.Second

// MaxReportBytes bounds a report's body: the largest lists that the API server
// takes, and as much again for what JSON adds.
const MaxReportBytes = 2 << 20

// Bounds of what a report may hold beside its lists.
const (
	// MaxPlayerIDs bounds Players.IDs.
	MaxPlayerIDs = 1000
	// MaxValueLength bounds a player's id and a list's value, in characters.
	MaxValueLength = 128
	// MaxValueBytes bounds those that a game gives its sidecar.
	MaxValueBytes = 128
	// MaxMetadata bounds Labels and Annotations, each.
	MaxMetadata = 64
	// MaxAnnotationBytes bounds an annotation's value.
	MaxAnnotationBytes = 4 << 10
	// MaxMetadataBytes bounds all labels and annotations together: the API server
	// takes twice as much, of everybody's.
	MaxMetadataBytes = 128 << 10
	// MaxMessageBytes bounds Game.Message.
	MaxMessageBytes = 1 << 10
	// MaxInstanceBytes bounds Instance and Seen.
	MaxInstanceBytes = 64
	// MaxCounters and MaxLists bound how many counters and lists a game has, and
	// MaxListValues how many values a list.
	MaxCounters   = 32
	MaxLists      = 4
	MaxListValues = 1000
	// MaxNameBytes bounds the name of a counter or a list.
	MaxNameBytes = 63
)

// Report is what a sidecar says of its game. It is always complete: nothing is
// kept from an earlier one, except as Restore says.
type Report struct {
	// Server is the Server's name, for which the token must be good.
	Server string `json:"server"`
	// Instance tells one process of a sidecar from the next; a random word.
	Instance string `json:"instance"`
	// Sequence grows with each report of an instance, up to 1<<63-1. A report
	// that is older than one that was taken is answered and otherwise ignored.
	Sequence uint64 `json:"sequence"`
	// Restore reports whether this sidecar has just started and knows nothing: the
	// answer brings what was last reported for the Pod, and everything below is
	// ignored.
	Restore bool `json:"restore,omitempty"`
	// Seen is the Version of the last answer: the report is held while there is
	// no other.
	Seen string `json:"seen,omitempty"`

	// Game is the game's state.
	Game Game `json:"game"`
	// DeletionAllowed is whether the Server may be deleted now.
	DeletionAllowed bool `json:"deletionAllowed"`
	// ShutdownSeen reports whether the last answer told to shut down: DeletionAllowed
	// is the answer to that.
	ShutdownSeen bool `json:"shutdownSeen,omitempty"`
}

// Game is what is known of a game, and what a sidecar that starts again gets
// back.
type Game struct {
	// State is what the game says of itself.
	State v1alpha1.GameState `json:"state"`
	// Message says in a sentence why it is Unhealthy.
	Message string `json:"message,omitempty"`
	// Reported is true once the game has told its state, its players or a
	// permission, or answered its probe.
	Reported bool `json:"reported,omitempty"`
	// Permission is the game's own word on its deletion, if it has given one.
	Permission v1alpha1.DeletionPermission `json:"permission,omitempty"`
	// ReservedUntil is when a reservation ends, by the node's clock.
	ReservedUntil *time.Time `json:"reservedUntil,omitempty"`
	// Players is how many play; nil where nobody has said.
	Players *v1alpha1.PlayersStatus `json:"players,omitempty"`
	// Counters and Lists are all the game's counters and lists.
	Counters map[string]v1alpha1.Counter `json:"counters,omitempty"`
	Lists    map[string]v1alpha1.List    `json:"lists,omitempty"`
	// Labels and Annotations are those that the game has set through the SDK,
	// with v1alpha1.SDKMetadataPrefix.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Answer is what a sidecar is told.
type Answer struct {
	// Version changes when anything below does, Restored apart.
	Version string `json:"version"`
	// Shutdown reports whether the Server is being deleted or stopped: the game is to
	// end when its players allow.
	Shutdown bool `json:"shutdown,omitempty"`
	// Drain reports whether the game gets no new players.
	Drain bool `json:"drain,omitempty"`
	// SkipFull reports whether the game gets none either while as many play as its
	// capacity.
	SkipFull bool `json:"skipFull,omitempty"`
	// GameStarted is when the game's container was started, by the node's clock
	// and to a whole second; nil while it doesn't run. What the game said before
	// that was said by a process that is gone.
	GameStarted *time.Time `json:"gameStarted,omitempty"`
	// GameEnded is when it ended, while it doesn't run; what it said before that is
	// no longer true either.
	GameEnded *time.Time `json:"gameEnded,omitempty"`
	// Server is what the SDK tells the game of its Server.
	Server Server `json:"server"`
	// Restored answers Restore; nil when nothing is known of the Pod.
	Restored *Game `json:"restored,omitempty"`
}

// Server is what the SDK tells a game of its Server.
type Server struct {
	Name              string                      `json:"name"`
	Namespace         string                      `json:"namespace"`
	UID               string                      `json:"uid"`
	Generation        int64                       `json:"generation"`
	CreationTimestamp time.Time                   `json:"creationTimestamp"`
	DeletionTimestamp *time.Time                  `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string           `json:"labels,omitempty"`
	Annotations       map[string]string           `json:"annotations,omitempty"`
	State             v1alpha1.ServerState        `json:"state,omitempty"`
	Address           string                      `json:"address,omitempty"`
	PodIP             string                      `json:"podIP,omitempty"`
	NodeName          string                      `json:"nodeName,omitempty"`
	Ports             []v1alpha1.ServerPortStatus `json:"ports,omitempty"`
	// Capacity, Counters and Lists are what the spec begins with.
	Capacity int32                       `json:"capacity,omitempty"`
	Counters map[string]v1alpha1.Counter `json:"counters,omitempty"`
	Lists    map[string]v1alpha1.List    `json:"lists,omitempty"`
}

// RecentPath is where an operator replica tells another, with the operator's
// token, what it has been reported lately (GET).
const RecentPath = "/v1/recent-reports"

// Parameters of RecentPath.
const (
	// NamespaceQuery names a namespace.
	NamespaceQuery = "namespace"
	// OwnerQuery names a Fleet or a GameType in it, such as Fleet/lobbies.
	OwnerQuery = "owner"
)

// Recent is the answer at RecentPath.
type Recent struct {
	// Servers are those of the owner that this replica has a report of which is
	// not older than FreshFor.
	Servers []RecentReport `json:"servers"`
}

// RecentReport is the last that a replica was told of a Server.
type RecentReport struct {
	// Name is the Server's.
	Name string `json:"name"`
	// PodUID is the Pod that it was said of.
	PodUID string `json:"podUID"`
	// Instance and Sequence are the report's.
	Instance string `json:"instance"`
	Sequence uint64 `json:"sequence"`
	// AgeMilliseconds is how long ago that was.
	AgeMilliseconds int64 `json:"ageMilliseconds"`
	// Busy reports whether somebody plays, or that the game may not be deleted.
	Busy bool `json:"busy"`
}
