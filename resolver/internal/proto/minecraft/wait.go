package minecraft

import (
	"errors"
	"time"

	wire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// A client that logs in gives up 30 s after it last heard from the server. Since 1.13 a server
// may send it a Login Plugin Request at any time of the login, on a channel of its own. A
// client that doesn't know the channel answers just that, and goes on waiting.
const (
	askAfter   = 20 * time.Second
	answerTime = 5 * time.Second

	// asksSince is the protocol of 1.13.
	asksSince = 393
	// questionID and replyID are the packets' numbers; neither has changed since.
	questionID, replyID = 4, 2
	channel             = "dormouse:wait"
)

var _ proto.Waiter = Protocol{}

// Patience implements proto.Waiter.
func (Protocol) Patience() (ask, answer time.Duration) { return askAfter, answerTime }

// WouldWait implements proto.Waiter.
func (Protocol) WouldWait(head []byte) bool {
	handshake, _, err := ParseHandshake(head)
	return err == nil && handshake.Next != NextStatus && handshake.Protocol >= asksSince
}

// Question implements proto.Waiter.
func (Protocol) Question(to []byte, n int32) []byte {
	var scratch [32]byte
	packet := wire.AppendVarInt(scratch[:0], questionID)
	packet = wire.AppendVarInt(packet, n)
	packet = wire.AppendVarInt(packet, int32(len(channel)))
	return wire.AppendFrame(to, append(packet, channel...))
}

// Reply implements proto.Waiter.
func (Protocol) Reply(b []byte, n int32) (int, error) {
	length, size, err := wire.ParseVarInt(b)
	switch {
	case errors.Is(err, wire.ErrShort):
		return 0, nil
	case err != nil || length < 1 || length > maxFrame || len(b) > size && b[size] != replyID:
		return 0, errMalformed
	case len(b) < size+int(length):
		return 0, nil
	}
	r := reader{rest: b[size : size+int(length)]}
	if r.varInt() != replyID || r.varInt() != n || r.take(1) == nil || r.bad {
		return 0, errMalformed
	}
	return size + int(length), nil
}
