// Package minecraft is Minecraft's Java edition: status requests and pings of all
// ages are answered while the server sleeps, and a login wakes it. The format is
// described at https://minecraft.wiki/w/Java_Edition_protocol.
//
// A login is held as the client sent it, whatever mods and proxies appended to
// the host in its handshake.
package minecraft

import (
	"cmp"
	"encoding/hex"
	"errors"
	"time"

	wire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// holdAtMost leaves the client time to show why it is refused: it gives up by itself 30 s after
// it last heard from the server.
const holdAtMost = 25 * time.Second

// legacyPause is how long a client must be silent to count as a legacy client, where what it
// sent may be all that such a client sends.
const legacyPause = 300 * time.Millisecond

// Protocol is the protocol module.
type Protocol struct{}

var _ proto.Namer = Protocol{}

// Name implements proto.Protocol.
func (Protocol) Name() string { return "minecraft" }

// WakeOn implements proto.Protocol. A connection alone means nothing: server lists are
// refreshed all the time.
func (Protocol) WakeOn() proto.WakeOn { return proto.OnData }

// HoldAtMost implements proto.Protocol.
func (Protocol) HoldAtMost() time.Duration { return holdAtMost }

// Inspect implements proto.Protocol. What was answered is consumed, so the next packet of a
// client that asked for the status stands alone.
func (Protocol) Inspect(head []byte, c proto.Client) proto.Verdict {
	if len(head) == 0 {
		return proto.Verdict{Action: proto.NeedMore}
	}
	if is, newer, maybe := isLegacy(head); is {
		v := proto.Verdict{Action: proto.Finish, Answer: appendLegacyStatus(c.Scratch, c, newer)}
		if maybe {
			v.After = legacyPause
		}
		return v
	}
	packet, size, err := cutFrame(head)
	switch {
	case err != nil:
		return unfinished(err)
	case isStatusRequest(packet), isPing(packet):
		return answer(packet, size, 0, c)
	}
	handshake, size, err := ParseHandshake(head)
	if err != nil {
		return unfinished(err)
	}
	packet, more, err := cutFrame(head[size:])
	if err != nil {
		return unfinished(err)
	}
	if handshake.Next == NextStatus {
		return answer(packet, size+more, handshake.Protocol, c)
	}
	name, uuid, err := parseLoginStart(packet, handshake.Protocol)
	if err != nil {
		return unfinished(err)
	}
	if c.Down() {
		return proto.Verdict{Action: proto.Refuse, Reason: proto.Maintenance, Answer: wire.AppendLoginDisconnect(c.Scratch, refusalText(proto.Maintenance, c))}
	}
	if players := c.Service.Players; players != nil && !players.May(string(name), hex.EncodeToString(uuid)) {
		text := cmp.Or(players.Message, "The server is asleep, and you may not wake it up.")
		return proto.Verdict{Action: proto.Refuse, Reason: proto.Denied, Answer: wire.AppendLoginDisconnect(c.Scratch, text)}
	}
	return proto.Verdict{Action: proto.Hold}
}

// ServerName implements proto.Namer. The oldest pings have no name.
func (Protocol) ServerName(head []byte) (name string, action proto.Action) {
	if len(head) == 0 {
		return "", proto.NeedMore
	}
	if is, _, _ := isLegacy(head); is {
		return "", proto.Hold
	}
	handshake, _, err := ParseHandshake(head)
	if err != nil {
		return "", unfinished(err).Action
	}
	return handshake.ServerName(), proto.Hold
}

// unfinished is the verdict on bytes that are not a whole packet, or none at all.
func unfinished(err error) proto.Verdict {
	if errors.Is(err, wire.ErrShort) {
		return proto.Verdict{Action: proto.NeedMore}
	}
	return proto.Verdict{Action: proto.Refuse}
}

// answer answers a client that queries the status.
func answer(packet []byte, used int, protocol int32, c proto.Client) proto.Verdict {
	switch {
	case isStatusRequest(packet):
		return proto.Verdict{Action: proto.Answer, Answer: appendStatus(c.Scratch, c, protocol), Used: used, Once: true}
	case isPing(packet):
		// Servers close after the pong, and clients have all that they want then.
		return proto.Verdict{Action: proto.Finish, Answer: wire.AppendFrame(c.Scratch, packet), Used: used}
	}
	return proto.Verdict{Action: proto.Refuse}
}

// Refusal implements proto.Protocol: a text for clients that log in, and nothing for others.
func (Protocol) Refusal(why proto.Reason, head []byte, c proto.Client) []byte {
	handshake, _, err := ParseHandshake(head)
	if err != nil || handshake.Next == NextStatus || why == proto.Denied {
		return nil
	}
	return wire.AppendLoginDisconnect(c.Scratch, refusalText(why, c))
}

// refusalText is the text that a player is shown.
func refusalText(why proto.Reason, c proto.Client) string {
	switch why {
	case proto.TimedOut:
		if own := c.Service.Answers.Rejoin; own != "" {
			return own
		}
		return "The server is still waking up. Join again in a moment."
	case proto.QueueFull, proto.TooManyBytes, proto.TooManySessions, proto.TooManyConnections,
		proto.SourceConnections, proto.SourceSessions, proto.SourceRate, proto.ServiceRate:
		return "Too many players are waiting for this server. Join again in a moment."
	case proto.NothingToWake:
		return "This server can't be woken up just now."
	case proto.Maintenance:
		return "The server is " + c.DownText() + "."
	case proto.UnknownName:
		return "There is no server by this name here. Check the address."
	case proto.RouteGone, proto.Unwanted, proto.Unfinished, proto.NoProxyHeader, proto.Evicted, proto.Denied, proto.AnswerRate, proto.WaitingPage:
	}
	return "The connection to this server was interrupted. Join again."
}
