// Package tcp is for any protocol over TCP that Dormouse doesn't know: a connection wakes the
// service, bytes are kept as they are, and a refusal is a close.
package tcp

import (
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Protocol is the protocol module.
type Protocol struct{}

var _ proto.Protocol = Protocol{}

// Name implements proto.Protocol.
func (Protocol) Name() string { return "tcp" }

// WakeOn implements proto.Protocol. A connection alone must wake: in many
// protocols the server speaks first.
func (Protocol) WakeOn() proto.WakeOn { return proto.OnConnect }

// HoldAtMost implements proto.Protocol.
func (Protocol) HoldAtMost() time.Duration { return 0 }

// Inspect implements proto.Protocol.
func (Protocol) Inspect([]byte, proto.Client) proto.Verdict { return proto.Verdict{Action: proto.Hold} }

// Refusal implements proto.Protocol.
func (Protocol) Refusal(proto.Reason, []byte, proto.Client) []byte { return nil }
