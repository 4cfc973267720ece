// Package sidecars plays many sidecars from a few processes: their long polls are real, and no
// game is beside them.
package sidecars

import "encoding/json"

// Sidecar is one that is played. It has a Token, or a Key with which it signs its own.
type Sidecar struct {
	Server string `json:"server"`
	Token  string `json:"token,omitempty"`
	Key    *Key   `json:"key,omitempty"`
	// Players is how many play there at first.
	Players int32 `json:"players,omitempty"`
}

// Key is what a Pod's sidecar signs with.
type Key struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	// Namespace and UID are the Pod's; its name is the Server's.
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

// command is what a process that plays is told, a line each. One of the fields is set.
type command struct {
	// Play starts a sidecar, and End ends the Server's.
	Play *Sidecar `json:"play,omitempty"`
	End  string   `json:"end,omitempty"`
	// Change makes the players of one sidecar in twenty change.
	Change bool `json:"change,omitempty"`
}

// notice is what such a process tells, a line each.
type notice struct {
	// Drained is the name of a Server whose sidecar was told to drain, At when, in
	// nanoseconds since 1970.
	Drained string `json:"drained,omitempty"`
	At      int64  `json:"at,omitempty"`
	// Unready is the name of a Server whose sidecar isn't ready any more: kubelet's probe of it
	// would fail from now on.
	Unready string `json:"unready,omitempty"`
	// Failed counts the calls that failed in the last second, and Why is one's reason.
	Failed int64  `json:"failed,omitempty"`
	Why    string `json:"why,omitempty"`
}

// encode is a command as its line.
func encode(c command) ([]byte, error) {
	line, err := json.Marshal(c)
	return append(line, '\n'), err
}
