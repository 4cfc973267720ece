// Package gamewire is the protocol that the test game server and the test
// player speak: numbered messages one way, and for each of them a reply that
// says what the server saw of it. It holds no sockets.
//
// A message is "NUMBER PAYLOAD": a line over TCP, a datagram over UDP. A reply
// is a JSON object, framed the same way.
package gamewire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// MaxMessage bounds a message and a reply, the line's end included. It fits a
// datagram.
const MaxMessage = 16 << 10

// ErrMalformed is wrapped by every error of this package that says that what
// arrived is not of the protocol.
var ErrMalformed = errors.New("malformed message")

// Message is what a player sends.
type Message struct {
	// Number counts a session's messages from 1.
	Number uint64
	// Payload comes back in the reply. It has no line end.
	Payload string
}

// Reply is what the server answers to one message. Times are Unix nanoseconds
// of the server's clock.
type Reply struct {
	// Number and Payload are the message's.
	Number  uint64 `json:"n"`
	Payload string `json:"payload"`

	// Server is the server's identity: its pod's name.
	Server string `json:"server"`
	// Boot is new with each start of the server's process, and so differs after
	// a crash within one pod.
	Boot string `json:"boot"`
	// Started is when the process started, Listening when its game ports
	// opened, FirstByte when the session's first byte was read.
	Started   int64 `json:"started"`
	Listening int64 `json:"listening"`
	FirstByte int64 `json:"firstByte"`

	// Peer is the address that the session comes from as the server sees it:
	// a resolver pod's while the session is relayed.
	Peer string `json:"peer"`
	// Local is the server's own address of the session.
	Local string `json:"local"`

	// Messages and Bytes are what the server has received in the session, this
	// message included.
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
}

// AppendMessage appends m to b, without a line end.
func AppendMessage(b []byte, m Message) []byte {
	b = strconv.AppendUint(b, m.Number, 10)
	b = append(b, ' ')
	return append(b, m.Payload...)
}

// ParseMessage reads a message without its line end.
func ParseMessage(b []byte) (Message, error) {
	head, payload, ok := bytes.Cut(b, []byte(" "))
	if !ok {
		return Message{}, fmt.Errorf("parse message: %w: no space after the number", ErrMalformed)
	}
	number, err := strconv.ParseUint(string(head), 10, 64)
	if err != nil {
		return Message{}, fmt.Errorf("parse message: %w: number %q", ErrMalformed, head)
	}
	return Message{Number: number, Payload: string(payload)}, nil
}

// AppendReply appends r to b, without a line end.
func AppendReply(b []byte, r Reply) ([]byte, error) {
	encoded, err := json.Marshal(r)
	if err != nil {
		return b, fmt.Errorf("encode reply %d: %w", r.Number, err)
	}
	return append(b, encoded...), nil
}

// ParseReply reads a reply without its line end.
func ParseReply(b []byte) (Reply, error) {
	var r Reply
	if err := json.Unmarshal(b, &r); err != nil {
		return Reply{}, fmt.Errorf("parse reply: %w: %w", ErrMalformed, err)
	}
	return r, nil
}
