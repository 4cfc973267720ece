package bedrock

import (
	"errors"
	"fmt"
	"net"

	wire "dormouse.dev/dormouse/internal/gameproto/bedrock"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Querier = Protocol{}

var errAnothers = errors.New("reading a pong: it is another ping's")

// Ask implements proto.Querier by a ping.
func (Protocol) Ask(c net.Conn) (proto.Answers, error) {
	// The time is a mark that the pong has to repeat.
	const mark = 0x646f726d6f757365
	if _, err := c.Write(wire.AppendPing(nil, mark, mark)); err != nil {
		return proto.Answers{}, fmt.Errorf("pinging: %w", err)
	}
	buf := make([]byte, 2048)
	n, err := c.Read(buf)
	if err != nil {
		return proto.Answers{}, fmt.Errorf("waiting for a pong: %w", err)
	}
	p, err := wire.ParsePong(buf[:n])
	if err != nil {
		return proto.Answers{}, fmt.Errorf("reading a pong: %w", err)
	}
	if p.Time != mark {
		return proto.Answers{}, errAnothers
	}
	return proto.Answers{
		Version: p.Status.Version, Protocol: int32(p.Status.Protocol), MaxPlayers: int32(p.Status.Capacity), Map: p.Status.Level, //nolint:gosec // it is only shown
	}, nil
}
