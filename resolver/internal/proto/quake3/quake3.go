// Package quake3 is Quake 3 and the many games that come from it: getstatus and
// getinfo are answered while the server sleeps, and any other datagram wakes it.
// The format is described at https://github.com/ioquake/ioq3 in code/server/sv_main.c.
//
// An answer is larger than its query, and the sender can't validate its address, so an answer
// has 512 bytes at most.
package quake3

import (
	"strconv"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// maxAnswer bounds an answer in bytes; what is in it has the limits below.
	maxAnswer    = 512
	maxChallenge = 64
	maxName      = 128
	maxText      = 48
	// Answers where nothing is known: Quake 3 1.32 has the protocol 68.
	defaultProtocol   = 68
	defaultMaxPlayers = 16
)

// Protocol is the protocol module.
type Protocol struct{}

var _ proto.Protocol = Protocol{}

// Name implements proto.Protocol.
func (Protocol) Name() string { return "quake3" }

// WakeOn implements proto.Protocol.
func (Protocol) WakeOn() proto.WakeOn { return proto.OnData }

// HoldAtMost implements proto.Protocol: clients ask for a connection until they get one.
func (Protocol) HoldAtMost() time.Duration { return 0 }

// Inspect implements proto.Protocol.
func (Protocol) Inspect(head []byte, c proto.Client) proto.Verdict {
	if len(head) == 0 {
		return proto.Verdict{Action: proto.Refuse}
	}
	q, challenge := parseQuery(head)
	switch q {
	case getStatus:
		return proto.Verdict{Action: proto.Answer, Answer: appendStatus(c.Scratch, challenge, c), Used: len(head)}
	case getInfo:
		return proto.Verdict{Action: proto.Answer, Answer: appendInfo(c.Scratch, challenge, c), Used: len(head)}
	case notQuery:
	}
	return proto.Verdict{Action: proto.Hold}
}

// Refusal implements proto.Protocol: a line that clients show while they connect, unless it is
// larger than what the client sent, or the client may not wake the service.
func (Protocol) Refusal(why proto.Reason, head []byte, c proto.Client) []byte {
	if why == proto.Denied || why == proto.Maintenance {
		return nil
	}
	text := "print\nTry again later.\n"
	if why == proto.QueueFull || why == proto.TooManySessions || why == proto.TooManyBytes {
		text = "print\nServer is full.\n"
	}
	if len(head) < len(mark)+len(text) || string(head[:len(mark)]) != mark {
		return nil
	}
	return append(append(c.Scratch, mark...), text...)
}

func appendStatus(to, challenge []byte, c proto.Client) []byte {
	to = append(append(to, mark...), "statusResponse\n"...)
	to = appendChallenge(to, challenge)
	to = appendMessage(append(to, `\sv_hostname\`...), c)
	to = appendCommon(to, c)
	if v := c.Service.Answers.Version; v != "" {
		to = appendText(append(to, `\version\`...), v)
	}
	return append(to, '\n')
}

func appendInfo(to, challenge []byte, c proto.Client) []byte {
	to = append(append(to, mark...), "infoResponse\n"...)
	to = appendChallenge(to, challenge)
	to = appendMessage(append(to, `\hostname\`...), c)
	to = appendCommon(to, c)
	return append(to, `\clients\0\g_humanplayers\0`...)
}

// appendCommon writes the part that both answers have.
func appendCommon(to []byte, c proto.Client) []byte {
	a := c.Service.Answers
	protocol, players, level := a.Protocol, a.MaxPlayers, a.Map
	if protocol == 0 {
		protocol = defaultProtocol
	}
	if players == 0 {
		players = defaultMaxPlayers
	}
	if level == "" {
		level = "-"
	}
	to = strconv.AppendInt(append(to, `\protocol\`...), int64(protocol), 10)
	to = strconv.AppendInt(append(to, `\sv_maxclients\`...), int64(players), 10)
	to = appendText(append(to, `\mapname\`...), level)
	if a.Game != "" {
		to = appendText(append(to, `\gamename\`...), a.Game)
	}
	return to
}

// appendChallenge repeats the query's challenge.
func appendChallenge(to, challenge []byte) []byte {
	if len(challenge) == 0 {
		return to
	}
	return append(append(to, `\challenge\`...), challenge...)
}

func appendMessage(to []byte, c proto.Client) []byte {
	start := len(to)
	return plain(c.AppendMessage(to, maxName), start)
}

func appendText(to []byte, text string) []byte {
	start := len(to)
	return plain(proto.AppendText(to, text, maxText), start)
}

// plain drops from b, from start on, the characters that separate or end values.
func plain(b []byte, start int) []byte {
	kept := b[:start]
	for _, c := range b[start:] {
		if c >= ' ' && c != '\\' && c != '"' && c != ';' && c != 0x7f {
			kept = append(kept, c)
		}
	}
	return kept
}
