package quake3

import (
	"errors"
	"fmt"
	"net"

	wire "dormouse.dev/dormouse/internal/gameproto/quake3"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Querier = Protocol{}

// Ask implements proto.Querier by getinfo.
func (Protocol) Ask(c net.Conn) (proto.Answers, error) {
	const mark = "dormouse"
	if _, err := c.Write(wire.AppendInfoRequest(nil, mark)); err != nil {
		return proto.Answers{}, fmt.Errorf("asking for the info: %w", err)
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return proto.Answers{}, fmt.Errorf("waiting for the info: %w", err)
	}
	info, err := wire.ParseInfo(buf[:n])
	if err != nil {
		return proto.Answers{}, fmt.Errorf("reading the info: %w", err)
	}
	// A few games don't repeat the challenge.
	if got, ok := info[wire.VarChallenge]; ok && got != mark {
		return proto.Answers{}, errors.New("reading the info: it is another query's")
	}
	protocol, _ := info.Number("protocol")
	players, _ := info.Number(wire.VarCapacity)
	return proto.Answers{
		Protocol: int32(protocol), MaxPlayers: int32(players), Map: info["mapname"], Game: info["gamename"], //nolint:gosec // they have 31 bits
	}, nil
}
