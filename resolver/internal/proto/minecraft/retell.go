package minecraft

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	wire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Reteller = Protocol{}

// Asks implements proto.Reteller for a handshake and a status request. The answer may depend on
// the client's version, and on the host name.
func (Protocol) Asks(head []byte, _ proto.Client) (q proto.Question, v proto.Verdict, ok bool) {
	handshake, size, err := ParseHandshake(head)
	if err != nil || handshake.Next != NextStatus {
		return q, v, false
	}
	packet, more, err := cutFrame(head[size:])
	if err != nil || !isStatusRequest(packet) {
		return q, v, false
	}
	return proto.Question{
		Key: strconv.Itoa(int(handshake.Protocol)) + " " + handshake.ServerName(), Ask: head[:size+more], Used: size + more,
	}, v, true
}

// Fetch implements proto.Reteller.
func (Protocol) Fetch(c net.Conn, ask []byte) ([]byte, error) {
	if _, err := c.Write(ask); err != nil {
		return nil, fmt.Errorf("asking for the status: %w", err)
	}
	frame, _, err := readStatus(c)
	if err != nil {
		return nil, err
	}
	if len(frame) > proto.MaxRetold {
		return nil, errors.New("reading the status: it is too long to be kept")
	}
	return wire.AppendFrame(nil, frame), nil
}

// Retell implements proto.Reteller.
func (Protocol) Retell(to, answer, _ []byte) []byte { return append(to, answer...) }

// ValidatesAddress implements proto.Reteller.
func (Protocol) ValidatesAddress() bool { return true }
