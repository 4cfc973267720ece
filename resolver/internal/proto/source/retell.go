package source

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Reteller = &Protocol{}

const (
	// challengeFollows is the number of the message with which a server sends a challenge.
	challengeFollows = 'A'
	// noChallenge is what clients without a challenge send.
	noChallenge = mark
)

// Asks implements proto.Reteller. A client without a challenge gets one, and asks again. A
// challenge that was not given here is left to the server, which may have given it.
func (p *Protocol) Asks(head []byte, c proto.Client) (q proto.Question, v proto.Verdict, ok bool) {
	asks, is := parseQuery(head)
	q = proto.Question{Key: string(asks.kind), Ask: head[:len(head):len(head)], Used: len(head)}
	switch {
	case !is || asks.kind == 0:
		return q, v, false
	case asks.challenge == nil || string(asks.challenge) == noChallenge:
		return q, p.ask(head, c), true
	case !p.knows(asks.challenge, c):
		return q, v, false
	}
	return q, v, true
}

// Fetch implements proto.Reteller. An answer in parts is an error.
func (*Protocol) Fetch(c net.Conn, ask []byte) ([]byte, error) {
	challenge := []byte(noChallenge)
	buf := make([]byte, 2048)
	// A server may require a challenge, and a new one just after.
	for range 3 {
		if _, err := c.Write(queryWith(ask, challenge)); err != nil {
			return nil, fmt.Errorf("asking: %w", err)
		}
		n, err := c.Read(buf)
		if err != nil {
			return nil, fmt.Errorf("waiting for the answer: %w", err)
		}
		body, is := bytes.CutPrefix(buf[:n], []byte(mark))
		switch {
		case !is || len(body) == 0:
			return nil, errors.New("reading the answer: it stands not alone, or is none")
		case body[0] != challengeFollows:
			return bytes.Clone(buf[:n]), nil
		case len(body) < 1+challengeBytes:
			return nil, errors.New("reading the answer: its challenge is cut off")
		}
		challenge = bytes.Clone(body[1 : 1+challengeBytes])
	}
	return nil, errors.New("asking: the server goes on asking for a challenge")
}

// queryWith is a query with a challenge of the server's.
func queryWith(query, challenge []byte) []byte {
	out := append([]byte(mark), query[len(mark)])
	if query[len(mark)] == askInfo {
		out = append(out, infoText...)
		if string(challenge) == noChallenge {
			return out
		}
	}
	return append(out, challenge...)
}

// Retell implements proto.Reteller.
func (*Protocol) Retell(to, answer, _ []byte) []byte { return append(to, answer...) }

// ValidatesAddress implements proto.Reteller.
func (*Protocol) ValidatesAddress() bool { return true }
