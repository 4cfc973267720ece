package minecraft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	wire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Querier = Protocol{}

// Ask implements proto.Querier by a status request. A server accepts connections some time
// before players can join, and answers this once they can.
func (Protocol) Ask(c net.Conn) (proto.Answers, error) {
	address, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	if _, err := c.Write(wire.AppendStatusRequest(nil, address.Addr().String(), address.Port())); err != nil {
		return proto.Answers{}, fmt.Errorf("asking for the status: %w", err)
	}
	_, s, err := readStatus(c)
	if err != nil {
		return proto.Answers{}, err
	}
	return proto.Answers{
		Version: s.Version, Protocol: int32(s.Protocol), MaxPlayers: int32(s.Capacity), Favicon: s.Favicon, //nolint:gosec // it is only shown
	}, nil
}

// readStatus reads a server's status. One that hides how many play is up like any other.
func readStatus(c net.Conn) (frame []byte, s wire.Status, err error) {
	if frame, err = wire.ReadFrame(c); err == nil {
		s, err = wire.ParseStatus(frame)
	}
	if err != nil && !errors.Is(err, wire.ErrNoPlayers) {
		return nil, wire.Status{}, fmt.Errorf("reading the status: %w", err)
	}
	return frame, s, nil
}
