package quake3

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Reteller = Protocol{}

// A server repeats a query's challenge in its answer. It is asked with a challenge of ours,
// which is then replaced by each client's own.
const (
	ownChallenge = "dormouse"
	repeated     = `\challenge\`
)

// Asks implements proto.Reteller.
func (Protocol) Asks(head []byte, _ proto.Client) (q proto.Question, v proto.Verdict, ok bool) {
	kind, challenge := parseQuery(head)
	word := "getinfo"
	switch kind {
	case getStatus:
		word = "getstatus"
	case getInfo:
	case notQuery:
		return q, v, false
	}
	if len(challenge) > 0 {
		word += " " + ownChallenge
	}
	return proto.Question{Key: word, Ask: []byte(mark + word), Used: len(head)}, v, true
}

// Fetch implements proto.Reteller.
func (Protocol) Fetch(c net.Conn, ask []byte) ([]byte, error) {
	if _, err := c.Write(ask); err != nil {
		return nil, fmt.Errorf("asking: %w", err)
	}
	buf := make([]byte, 16<<10)
	n, err := c.Read(buf)
	if err != nil {
		return nil, fmt.Errorf("waiting for the answer: %w", err)
	}
	if !bytes.HasPrefix(buf[:n], []byte(mark)) {
		return nil, errors.New("reading the answer: it is none")
	}
	return bytes.Clone(buf[:n]), nil
}

// Retell implements proto.Reteller.
func (Protocol) Retell(to, answer, head []byte) []byte {
	_, challenge := parseQuery(head)
	before, after, found := bytes.Cut(answer, []byte(repeated+ownChallenge))
	to = append(to, before...)
	if found {
		to = append(append(append(to, repeated...), challenge...), after...)
	}
	return to
}

// ValidatesAddress implements proto.Reteller.
func (Protocol) ValidatesAddress() bool { return false }
