// Package udp is for any protocol over UDP that Dormouse doesn't know: the first datagram wakes
// the service, and datagrams are kept as they are.
package udp

import (
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Protocol is the protocol module.
type Protocol struct{}

var _ proto.Protocol = Protocol{}

// Name implements proto.Protocol.
func (Protocol) Name() string { return "udp" }

// WakeOn implements proto.Protocol.
func (Protocol) WakeOn() proto.WakeOn { return proto.OnData }

// HoldAtMost implements proto.Protocol.
func (Protocol) HoldAtMost() time.Duration { return 0 }

// Inspect implements proto.Protocol.
func (Protocol) Inspect([]byte, proto.Client) proto.Verdict { return proto.Verdict{Action: proto.Hold} }

// Refusal implements proto.Protocol. Clients of UDP expect no answer from a server that is not
// there yet.
func (Protocol) Refusal(proto.Reason, []byte, proto.Client) []byte { return nil }
