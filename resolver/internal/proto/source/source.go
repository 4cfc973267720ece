// Package source is the query protocol of Valve's games, which many others speak
// too: queries are answered while the server sleeps, and any other datagram wakes
// it. The format is described at https://developer.valvesoftware.com/wiki/Server_queries.
//
// A query is answered once the client has shown that it receives what is sent to its address:
// it repeats a challenge, which is no larger than the query. Challenges are not kept: each is
// computed again from the address.
package source

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"net/netip"
	"time"

	wire "dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// slot is how long a challenge is given out. It is accepted for as long again.
const slot = 30 * time.Second

// Bounds of an info's texts in bytes, and answers where nothing is known.
const (
	maxName, maxText  = 128, 64
	defaultMaxPlayers = 16
	defaultVersion    = "1.0.0.0"
	// wireProtocol is the version of the protocol that today's games have.
	wireProtocol = 17
)

// Protocol is the protocol module. It has a key of its own.
type Protocol struct{ key [32]byte }

var _ proto.AddressValidator = &Protocol{}

// New makes the protocol module with a new key.
func New() *Protocol {
	p := &Protocol{}
	_, _ = rand.Read(p.key[:]) // It never fails.
	return p
}

// Name implements proto.Protocol.
func (*Protocol) Name() string { return "source" }

// WakeOn implements proto.Protocol.
func (*Protocol) WakeOn() proto.WakeOn { return proto.OnData }

// HoldAtMost implements proto.Protocol: each game has its own limit.
func (*Protocol) HoldAtMost() time.Duration { return 0 }

// Refusal implements proto.Protocol. Each game has its own format for it.
func (*Protocol) Refusal(proto.Reason, []byte, proto.Client) []byte { return nil }

// Inspect implements proto.Protocol.
func (p *Protocol) Inspect(head []byte, c proto.Client) proto.Verdict {
	if len(head) == 0 {
		return proto.Verdict{Action: proto.Refuse}
	}
	q, ok := parseQuery(head)
	if !ok {
		return proto.Verdict{Action: proto.Hold}
	}
	if q.kind == 0 {
		return proto.Verdict{Action: proto.Refuse}
	}
	if !p.knows(q.challenge, c) {
		return p.ask(head, c)
	}
	switch q.kind {
	case askInfo:
		return answer(appendInfo(c.Scratch, c), head)
	case askPlayers:
		return answer(append(append(c.Scratch, mark...), 'D', 0), head)
	}
	return answer(append(append(c.Scratch, mark...), 'E', 0, 0), head)
}

// ValidateAddress implements proto.AddressValidator: who queries must repeat the challenge.
func (p *Protocol) ValidateAddress(head []byte, c proto.Client) proto.Verdict {
	q, ok := parseQuery(head)
	switch {
	case ok && q.kind == 0:
		return proto.Verdict{Action: proto.Refuse}
	case ok && !p.knows(q.challenge, c):
		return p.ask(head, c)
	}
	return proto.Verdict{Action: proto.Hold}
}

// ask makes a client repeat a challenge. The challenge must not be larger than the query, which
// has 9 bytes at least.
func (p *Protocol) ask(head []byte, c proto.Client) proto.Verdict {
	challenge := p.challenge(c.Source, c.Now)
	b := append(append(append(c.Scratch, mark...), 'A'), challenge[:]...)
	return proto.Verdict{Action: proto.Answer, Answer: b, Used: len(head)}
}

// answer answers a client that has repeated its challenge.
func answer(b, head []byte) proto.Verdict {
	return proto.Verdict{Action: proto.Answer, Answer: b, Used: len(head), AddressValidated: true}
}

// knows reports whether a challenge was given to the client lately.
func (p *Protocol) knows(challenge []byte, c proto.Client) bool {
	if challenge == nil {
		return false
	}
	is, was := p.challenge(c.Source, c.Now), p.challenge(c.Source, c.Now.Add(-slot))
	return subtle.ConstantTimeCompare(challenge, is[:])|subtle.ConstantTimeCompare(challenge, was[:]) == 1
}

// challenge is a client's challenge at a time: a hash of both under the key. What is hashed
// always has the same length, so that no challenge can be derived from another.
func (p *Protocol) challenge(client netip.AddrPort, at time.Time) wire.Challenge {
	const keyEnd, addressEnd, portEnd = 32, 32 + 16, 32 + 16 + 2
	var in [portEnd + 8]byte
	copy(in[:keyEnd], p.key[:])
	address := client.Addr().As16()
	copy(in[keyEnd:addressEnd], address[:])
	binary.BigEndian.PutUint16(in[addressEnd:portEnd], client.Port())
	binary.BigEndian.PutUint64(in[portEnd:], uint64(at.Unix()/int64(slot/time.Second))) //nolint:gosec // the bits are what counts
	sum := sha256.Sum256(in[:])
	out := wire.Challenge(sum[:challengeBytes])
	if out == (wire.Challenge{0xff, 0xff, 0xff, 0xff}) {
		// Clients without a challenge send that.
		out[0] = 0
	}
	return out
}

func appendInfo(to []byte, c proto.Client) []byte {
	a := c.Service.Answers
	var message [maxName]byte
	i := wire.Info{
		Protocol: wireProtocol, Name: string(c.AppendMessage(message[:0], maxName)),
		Map: text(a.Map, "-"), Folder: text(a.Folder, "-"), Game: text(a.Game, "-"), Version: text(a.Version, defaultVersion),
		AppID: uint16(a.AppID), GameID: a.AppID, //nolint:gosec // the low bits are what stands there
		Capacity: uint8(min(max(a.MaxPlayers, 0), 255)), Type: 'd', OS: 'l', //nolint:gosec // bounded here
	}
	if a.MaxPlayers == 0 {
		i.Capacity = defaultMaxPlayers
	}
	return wire.AppendAnswer(to, wire.Answer{Info: &i})
}

func text(own, other string) string {
	if own == "" {
		return other
	}
	return own[:len(proto.AppendText(nil, own, maxText))]
}
