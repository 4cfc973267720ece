package source

import (
	"cmp"
	"errors"
	"fmt"
	"net"

	wire "dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Querier = &Protocol{}

// Ask implements proto.Querier by the query for the info. An answer in parts is an error: none
// that is kept here is that long.
func (*Protocol) Ask(c net.Conn) (proto.Answers, error) {
	var challenge *wire.Challenge
	buf := make([]byte, 2048)
	// A server may require a challenge, and a new one just after.
	for range 3 {
		if _, err := c.Write(wire.AppendInfoRequest(nil, challenge)); err != nil {
			return proto.Answers{}, fmt.Errorf("asking for the info: %w", err)
		}
		n, err := c.Read(buf)
		if err != nil {
			return proto.Answers{}, fmt.Errorf("waiting for the info: %w", err)
		}
		answer, err := wire.ParseAnswer(buf[:n])
		if err != nil {
			return proto.Answers{}, fmt.Errorf("reading the info: %w", err)
		}
		if i := answer.Info; i != nil {
			return proto.Answers{
				Version: i.Version, MaxPlayers: int32(i.Capacity), Map: i.Map, Game: i.Game, Folder: i.Folder,
				AppID: cmp.Or(i.GameID, uint64(i.AppID)),
			}, nil
		}
		challenge = answer.Challenge
	}
	return proto.Answers{}, errors.New("asking for the info: the server goes on asking for a challenge")
}
