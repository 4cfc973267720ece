// Package tls is TLS as far as it is not encrypted: the client's hello, which wakes the server
// and names the wanted host. Nothing is decrypted, and what the client sent is passed on as it
// is. The formats are those of RFC 8446 and, for the name, RFC 6066.
package tls

import (
	"errors"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Protocol is the protocol module.
type Protocol struct{}

var _ proto.Namer = Protocol{}

// Name implements proto.Protocol.
func (Protocol) Name() string { return "tls" }

// WakeOn implements proto.Protocol. A client speaks first, and scanners send other bytes.
func (Protocol) WakeOn() proto.WakeOn { return proto.OnData }

// HoldAtMost implements proto.Protocol.
func (Protocol) HoldAtMost() time.Duration { return 0 }

// Inspect implements proto.Protocol.
func (Protocol) Inspect(head []byte, _ proto.Client) proto.Verdict {
	switch _, err := parseHello(head); {
	case err == nil:
		return proto.Verdict{Action: proto.Hold}
	case errors.Is(err, errShort):
		return proto.Verdict{Action: proto.NeedMore}
	}
	return proto.Verdict{Action: proto.Refuse}
}

// ServerName implements proto.Namer.
func (Protocol) ServerName(head []byte) (name string, action proto.Action) {
	sent, err := parseHello(head)
	switch {
	case err == nil:
		return normal(sent), proto.Hold
	case errors.Is(err, errShort):
		return "", proto.NeedMore
	}
	return "", proto.Refuse
}

// Refusal implements proto.Protocol: an alert for a name that nobody has. In any other case the
// connection's end suits clients best: many try again after it.
func (Protocol) Refusal(why proto.Reason, head []byte, c proto.Client) []byte {
	if why != proto.UnknownName {
		return nil
	}
	if _, err := parseHello(head); err != nil {
		return nil
	}
	return appendUnrecognizedName(c.Scratch)
}
