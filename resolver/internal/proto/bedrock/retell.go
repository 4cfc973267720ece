package bedrock

import (
	"encoding/binary"
	"fmt"
	"net"

	wire "dormouse.dev/dormouse/internal/gameproto/bedrock"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Reteller = Protocol{}

// The offset of a ping's time, which its pong repeats, behind the message's number.
const timeAt, timeEnd = 1, 1 + 8

// Asks implements proto.Reteller for a ping. All pings have the same answer but for the time.
// Those that only servers with room answer have another answer, or none.
func (Protocol) Asks(head []byte, _ proto.Client) (q proto.Question, v proto.Verdict, ok bool) {
	if _, is := wire.ParsePing(head); !is {
		return q, v, false
	}
	return proto.Question{Key: string(head[:1]), Ask: head, Used: len(head)}, v, true
}

// Fetch implements proto.Reteller.
func (Protocol) Fetch(c net.Conn, ask []byte) ([]byte, error) {
	if _, err := c.Write(ask); err != nil {
		return nil, fmt.Errorf("pinging: %w", err)
	}
	buf := make([]byte, 2048)
	n, err := c.Read(buf)
	if err != nil {
		return nil, fmt.Errorf("waiting for a pong: %w", err)
	}
	pong, err := wire.ParsePong(buf[:n])
	if err != nil {
		return nil, fmt.Errorf("reading a pong: %w", err)
	}
	if pong.Time != binary.BigEndian.Uint64(ask[timeAt:timeEnd]) {
		return nil, errAnothers
	}
	return buf[:n], nil
}

// Retell implements proto.Reteller.
func (Protocol) Retell(to, answer, head []byte) []byte {
	start := len(to)
	to = append(to, answer...)
	copy(to[start+timeAt:start+timeEnd], head[timeAt:timeEnd])
	return to
}

// ValidatesAddress implements proto.Reteller.
func (Protocol) ValidatesAddress() bool { return false }
