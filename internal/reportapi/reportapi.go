// Package reportapi is the contract between the operator and the sidecars: a sidecar's reports
// about its game, and the operator's answers. It has types and names only.
package reportapi

import (
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// ReportPath is where each operator replica takes reports (POST). The caller's
// token must be bound to the Pod of the Server that it reports for.
const ReportPath = "/v1/report"

// DeniedSinceHeader names the sequence number of the instance's first report from which on each
// has denied the deletion; absent where this one doesn't. It is no field of the
// report because operators of an earlier version refuse those that they don't know.
const DeniedSinceHeader = "Dormouse-Denied-Since"

// HoldTime is how long a report is held when there is no news. A sidecar sends the next one
// when it is answered, or at once when something changed.
const HoldTime = 10 * time.Second

// RenewalTime is how long a report may be held that says no more than the one before, which was
// answered. It is shorter than FreshFor by what it takes to find out that a replica is gone.
const RenewalTime = 20 * time.Second

// ReturnTime is the time within which a sidecar comes back whose connection has ended and that has nothing new to
// say, at any moment of it: thousands may have been at the replica that has ended. With RenewalTime it is shorter
// than FreshFor.
const ReturnTime = 3 * time.Second

// HoldHeader names for how many seconds the caller lets its report be held where there is no news,
// up to RenewalTime; absent: HoldTime. Operators of an earlier version hold it for HoldTime. It is no
// field of the report for the reason that DeniedSinceHeader is none.
const HoldHeader = "Dormouse-Hold"

// MemoryHeader has the report's Memory as JSON, of at most MaxMemoryBytes; absent from sidecars of an
// earlier version. It is no field of the report for the reason that DeniedSinceHeader is none.
const MemoryHeader = "Dormouse-Memory"

// FreshFor is how long a report counts.
const FreshFor = 30 * time.Second

// MaxReportBytes bounds a report's body: the largest lists that the API server accepts, and as
// much again for what JSON adds.
const MaxReportBytes = 2 << 20

// Bounds of a report's fields other than its lists.
const (
	// MaxPlayerIDs bounds Players.IDs.
	MaxPlayerIDs = 1000
	// MaxValueLength bounds a player's id and a list's value, in characters.
	MaxValueLength = 128
	// MaxValueBytes bounds the values that a game gives its sidecar.
	MaxValueBytes = 128
	// MaxMetadata bounds Labels and Annotations, each.
	MaxMetadata = 64
	// MaxAnnotationBytes bounds an annotation's value.
	MaxAnnotationBytes = 4 << 10
	// MaxMetadataBytes bounds all labels and annotations together: the API server accepts twice
	// as much, from all writers.
	MaxMetadataBytes = 128 << 10
	// MaxMessageBytes bounds Game.Message.
	MaxMessageBytes = 1 << 10
	// MaxMemoryBytes bounds MemoryHeader.
	MaxMemoryBytes = 1 << 10
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

// Report is a sidecar's report about its game. It is always complete: nothing is kept from an
// earlier one, except as Restore says.
type Report struct {
	// Server is the Server's name, for which the token must be valid.
	Server string `json:"server"`
	// Instance distinguishes one process of a sidecar from the next; a random word.
	Instance string `json:"instance"`
	// Sequence grows with each report of an instance, up to 1<<63-1. A report that is older
	// than one that was accepted is answered and otherwise ignored.
	Sequence uint64 `json:"sequence"`
	// Restore is set where this sidecar has just started and knows nothing: the answer has what
	// was last reported for the Pod, and everything below is ignored.
	Restore bool `json:"restore,omitempty"`
	// Seen is the Version of the last answer: the report is held until there is a different
	// one.
	Seen string `json:"seen,omitempty"`

	// Game is the game's state.
	Game Game `json:"game"`
	// DeletionAllowed is whether the Server may be deleted now.
	DeletionAllowed bool `json:"deletionAllowed"`
	// ShutdownSeen is set where the last answer ordered to shut down: DeletionAllowed is the
	// reply to that. It stays set, though the order is taken back, where the game asks for its
	// end because of it.
	ShutdownSeen bool `json:"shutdownSeen,omitempty"`
	// Looked repeats the last answer's Look once the report is the reply to it; an answer
	// without one gets a report without one.
	Looked string `json:"looked,omitempty"`
	// Memory is sent as MemoryHeader; nil: there is none.
	Memory *Memory `json:"-"`
}

// Memory is what a sidecar that starts again gets back besides a Game.
type Memory struct {
	// Phase is what the game last said of its state, where that is Unhealthy, or Shutdown because nobody
	// plays: Ready, Allocated or Reserved, or Starting where it has said nothing of it.
	Phase v1alpha1.GameState `json:"phase,omitempty"`
	// Started is the Answer's GameStarted of the process that the Game is of; nil: that isn't known.
	Started *time.Time `json:"started,omitempty"`
	// CountsPlayers is set where a game that is probed has itself said how many play, which comes before
	// what its probe says; and of other games where one is Leaving.
	CountsPlayers bool `json:"countsPlayers,omitempty"`
	// Leaving is set where the game is to end once nobody plays. Where its state is Shutdown it is
	// set if the game asked for that without an order, which outlives its process.
	Leaving bool `json:"leaving,omitempty"`
}

// Game is a game's state, and what a sidecar that starts again gets back.
type Game struct {
	// State is the state that the game reports.
	State v1alpha1.GameState `json:"state"`
	// Message explains in a sentence why it is Unhealthy.
	Message string `json:"message,omitempty"`
	// Reported is true once the game has reported its state, its players or a permission, or
	// answered its probe.
	Reported bool `json:"reported,omitempty"`
	// Permission is the game's own decision on its deletion, if it has made one.
	Permission v1alpha1.DeletionPermission `json:"permission,omitempty"`
	// ReservedUntil is when a reservation ends, by the node's clock.
	ReservedUntil *time.Time `json:"reservedUntil,omitempty"`
	// Players is how many play; nil where nothing has reported that.
	Players *v1alpha1.PlayersStatus `json:"players,omitempty"`
	// Counters and Lists are all the game's counters and lists.
	Counters map[string]v1alpha1.Counter `json:"counters,omitempty"`
	Lists    map[string]v1alpha1.List    `json:"lists,omitempty"`
	// Labels and Annotations are those that the game has set through the SDK,
	// with wellknown.SDKMetadataPrefix.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Answer is the operator's answer to a sidecar.
type Answer struct {
	// Version changes when anything below does, except for Restored and RestoredMemory.
	Version string `json:"version"`
	// Shutdown is set where the Server is being deleted or stopped: the game is to end when its
	// players allow.
	Shutdown bool `json:"shutdown,omitempty"`
	// Drain is set where the game gets no new players.
	Drain bool `json:"drain,omitempty"`
	// SkipFull is set where the game gets no new players either while it is full.
	SkipFull bool `json:"skipFull,omitempty"`
	// Unreported is what holds for the deletion of a game that runs and has reported nothing; empty
	// from operators of an earlier version.
	Unreported v1alpha1.DeletionPermission `json:"unreported,omitempty"`
	// Look is set where somebody waits for a word on whether the Server may be deleted that is
	// newer than this answer; a random word. The sidecar probes the game at once, and replies.
	Look string `json:"look,omitempty"`
	// GameStarted is when the game's container was started, by the node's clock and to a whole
	// second; nil while it doesn't run. What the game reported before that came from a process
	// that is gone.
	GameStarted *time.Time `json:"gameStarted,omitempty"`
	// GameEnded is when it ended, while it doesn't run. What the game reported before that is
	// no longer true either.
	GameEnded *time.Time `json:"gameEnded,omitempty"`
	// GameWaits is set where the game's container can't be started, as without its image, and never
	// was.
	GameWaits bool `json:"gameWaits,omitempty"`
	// Server is what the SDK shows the game of its Server.
	Server Server `json:"server"`
	// Restored answers Restore; nil when nothing is known of the Pod.
	Restored *Game `json:"restored,omitempty"`
	// RestoredMemory is the Memory of what is restored; nil: it has none.
	RestoredMemory *Memory `json:"restoredMemory,omitempty"`
}

// Server is what the SDK shows a game of its Server.
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
	// Capacity, Counters and Lists are the initial ones in the spec.
	Capacity int32                       `json:"capacity,omitempty"`
	Counters map[string]v1alpha1.Counter `json:"counters,omitempty"`
	Lists    map[string]v1alpha1.List    `json:"lists,omitempty"`
	// Allocated is set while an Allocation has the Server, or places on it.
	Allocated bool `json:"allocated,omitempty"`
}

// RecentPath is where an operator replica answers another, which has the operator's token, with
// its recent reports (GET).
const RecentPath = "/v1/recent-reports"

// Parameters of RecentPath and LookPath.
const (
	// NamespaceQuery names a namespace.
	NamespaceQuery = "namespace"
	// OwnerQuery names a Fleet or a GameType in it, such as Fleet/lobbies.
	OwnerQuery = "owner"
)

// Recent is the answer at RecentPath.
type Recent struct {
	// Servers are the owner's Servers of which this replica has a report that is not older than
	// FreshFor.
	Servers []RecentReport `json:"servers"`
}

// RecentReport is a replica's last report about a Server.
type RecentReport struct {
	// Name is the Server's name.
	Name string `json:"name"`
	// PodUID is the Pod that reported.
	PodUID string `json:"podUID"`
	// Instance and Sequence are the report's.
	Instance string `json:"instance"`
	Sequence uint64 `json:"sequence"`
	// AgeMilliseconds is how long ago it was received.
	AgeMilliseconds int64 `json:"ageMilliseconds"`
	// Busy is set where somebody plays, or the game may not be deleted.
	Busy bool `json:"busy"`
}

// LookPath is where an operator replica has another, which has the operator's token, ask the
// sidecar of a Server to look anew (GET). The answer is held until the sidecar has replied to
// that replica, or for LookTime.
const LookPath = "/v1/look"

// Parameters of LookPath besides NamespaceQuery.
const (
	// ServerQuery names the Server, and PodQuery has its Pod's UID.
	ServerQuery = "server"
	PodQuery    = "pod"
	// WordQuery has the word, which is one for all replicas.
	WordQuery = "word"
)

// LookTime is how long a sidecar may take to reply.
const LookTime = time.Second

// Looked is the answer at LookPath.
type Looked struct {
	// Held is set, where there is no reply, if this replica held the sidecar's report when it was asked, or if too
	// many ask already: the sidecar isn't on its way from a replica that has ended. Those of an earlier version don't
	// say so.
	Held bool `json:"held,omitempty"`
	// Replied is set where the sidecar has replied to this replica, or has denied the deletion
	// before. Else nothing below is set.
	Replied bool `json:"replied,omitempty"`
	// DeletionAllowed is whether the Server may be deleted now.
	DeletionAllowed bool `json:"deletionAllowed,omitempty"`
	// ShutdownSeen is set where the sidecar knows that its game is to end.
	ShutdownSeen bool `json:"shutdownSeen,omitempty"`
	// Players is how many play; 0 also where nothing has reported that.
	Players int32 `json:"players,omitempty"`
}
