// Package bedrock is Minecraft's Bedrock edition on RakNet: pings are answered
// while the server sleeps, and a request for a connection wakes it. The format is
// described at https://minecraft.wiki/w/RakNet.
//
// Requests are held unanswered: the client repeats them until the server itself answers. A pong
// is larger than its ping, and the ping's sender can't validate its address, so a pong has 512
// bytes at most.
package bedrock

import (
	"time"

	wire "dormouse.dev/dormouse/internal/gameproto/bedrock"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// maxPong bounds a pong in bytes; the texts within it have the limits below.
	maxPong    = 512
	maxMessage = 160
	maxLevel   = 64
	maxVersion = 32
	// defaultMaxPlayers is the limit of servers that nobody configured.
	defaultMaxPlayers = 10
)

// Protocol is the protocol module.
type Protocol struct{}

var _ proto.Protocol = Protocol{}

// Name implements proto.Protocol.
func (Protocol) Name() string { return "bedrock" }

// WakeOn implements proto.Protocol.
func (Protocol) WakeOn() proto.WakeOn { return proto.OnData }

// HoldAtMost implements proto.Protocol. The client begins anew by itself, and its requests join
// those that are held.
func (Protocol) HoldAtMost() time.Duration { return 0 }

// Inspect implements proto.Protocol.
func (Protocol) Inspect(head []byte, c proto.Client) proto.Verdict {
	if at, ok := wire.ParsePing(head); ok {
		return proto.Verdict{Action: proto.Answer, Answer: appendPong(c.Scratch, at, c), Used: len(head)}
	}
	if wire.IsConnectionRequest(head) {
		return proto.Verdict{Action: proto.Hold}
	}
	// A server that doesn't know the connection ignores its datagrams.
	return proto.Verdict{Action: proto.Refuse}
}

// Refusal implements proto.Protocol: a message that there is no room, in answer to a request
// for a connection. A client that waited for a server that did not come has given up, and one
// that may not wake the server has nothing to wait for.
func (Protocol) Refusal(why proto.Reason, head []byte, c proto.Client) []byte {
	if !wire.IsConnectionRequest(head) || why == proto.RouteGone || why == proto.Denied || why == proto.Maintenance {
		return nil
	}
	start := len(c.Scratch)
	b := wire.AppendNoRoom(c.Scratch, c.Service.ID)
	if len(b)-start > len(head) {
		return nil
	}
	return b
}

func appendPong(to []byte, at uint64, c proto.Client) []byte {
	var message [maxMessage]byte
	a := c.Service.Answers
	s := wire.Status{
		Edition: "MCPE", Name: plain(c.AppendMessage(message[:0], maxMessage)), Protocol: int(a.Protocol),
		Version: plain(proto.AppendText(nil, a.Version, maxVersion)), Capacity: int(a.MaxPlayers),
		Level: plain(proto.AppendText(nil, a.Map, maxLevel)), Mode: "Survival",
	}
	if s.Version == "" {
		s.Version = "1"
	}
	if s.Capacity == 0 {
		s.Capacity = defaultMaxPlayers
	}
	// It is never too long, because the texts are bounded.
	b, _ := wire.AppendPong(to, wire.Pong{Time: at, GUID: c.Service.ID, Status: s})
	return b
}

// plain drops characters that have a meaning in a pong, which not all clients can unescape, and
// line ends, which lists can't show.
func plain(text []byte) string {
	kept := text[:0]
	for _, b := range text {
		switch {
		case b == ';':
			b = ','
		case b == '\\' || b < ' ':
			continue
		}
		kept = append(kept, b)
	}
	return string(kept)
}
