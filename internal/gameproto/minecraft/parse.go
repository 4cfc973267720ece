// Package minecraft has the format of the status query of Minecraft's Java edition: the
// client's question and the server's answer, both read and written. It handles bytes only;
// sockets and timeouts are its callers'.
//
// Everything from a peer is bounded before it is used: nothing here allocates by a number that
// it was sent.
package minecraft

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

const (
	// maxVarInt is how many bytes a VarInt of 32 bits has at most.
	maxVarInt = 5
	// maxString is how many characters the status may have; real clients refuse
	// more.
	maxString = 32767
	// MaxFrame bounds the frame of a status answer, in bytes: a string of the
	// longest kind, whose characters have four bytes each, with its length and
	// the packet's number.
	MaxFrame = maxVarInt + maxVarInt + 4*maxString
	// statusID is the packet number of a status request and of its answer.
	statusID = 0
	// maxDepth bounds how deep texts are nested in each other. Deeper ones are left out.
	maxDepth = 8
	// FaviconPrefix is the beginning of a favicon.
	FaviconPrefix = "data:image/png;base64,"
	// maxFavicon bounds a favicon in bytes.
	maxFavicon = 16 << 10
	// maxText bounds a description's plain text in bytes.
	maxText = 1024
)

// ErrShort means that the value isn't complete yet. More bytes may follow.
var ErrShort = errors.New("more bytes needed")

// ErrNoPlayers means that a status is whole but for how many play, or how many may: some servers
// hide that. The server answers, and it is unknown whether it is empty.
var ErrNoPlayers = errors.New("it doesn't tell how many play")

// Status is what a server reports to clients that refresh a server list.
type Status struct {
	// Version is the name of the server's version, and Protocol its number.
	Version  string
	Protocol int
	// Players is how many play, and Capacity how many may. Both are 0 or more.
	Players, Capacity int
	// Description is the message of the day, without colours and styles.
	Description string
	// Favicon is the server's picture, a PNG as a data URI; empty where it has none.
	Favicon string
}

// statusJSON is a Status on the wire.
type statusJSON struct {
	Version struct {
		Name     string `json:"name"`
		Protocol int    `json:"protocol"`
	} `json:"version"`
	Players *struct {
		Online *int64 `json:"online"`
		Max    *int64 `json:"max"`
	} `json:"players"`
	Description json.RawMessage `json:"description"`
	Favicon     json.RawMessage `json:"favicon"`
}

// ParseVarInt reads a VarInt and returns its size in bytes. The error is [ErrShort] while b may
// be the beginning of one.
func ParseVarInt(b []byte) (value int32, size int, err error) {
	var bits uint32
	for i := range maxVarInt {
		if i == len(b) {
			return 0, 0, ErrShort
		}
		bits |= uint32(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return int32(bits), i + 1, nil //nolint:gosec // the bits are a signed number's
		}
	}
	return 0, 0, errors.New("parse VarInt: it has no end after 5 bytes")
}

// ParseFrameLength reads the length with which a frame begins, and returns its size in bytes.
// The error is [ErrShort] while b is too short; a length that no status answer has is another
// error.
func ParseFrameLength(b []byte) (length, size int, err error) {
	value, size, err := ParseVarInt(b)
	if err != nil {
		return 0, 0, err
	}
	if value < 1 || value > MaxFrame {
		return 0, 0, fmt.Errorf("parse frame: length %d is not in 1 to %d", value, MaxFrame)
	}
	return int(value), size, nil
}

// ReadFrame reads until a frame is complete, and returns it without its length. Memory grows
// with the bytes received, not with the claimed length.
func ReadFrame(from io.Reader) ([]byte, error) {
	var got []byte
	chunk := make([]byte, 4<<10)
	for {
		n, err := from.Read(chunk)
		got = append(got, chunk[:n]...)
		length, size, short := ParseFrameLength(got)
		switch {
		case short == nil && len(got) >= size+length:
			return got[size : size+length], nil
		case short != nil && !errors.Is(short, ErrShort):
			return nil, short
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("read the answer: it ends after %d bytes: %w", len(got), io.ErrUnexpectedEOF)
		case err != nil:
			return nil, err
		}
	}
}

// ParseStatus reads a status answer, which is a frame without its length. An answer without
// players is an error, too, which is [ErrNoPlayers]: then the status has all but these.
func ParseStatus(frame []byte) (Status, error) {
	text, err := parseStatusString(frame)
	if err != nil {
		return Status{}, fmt.Errorf("parse status: %w", err)
	}
	var wire statusJSON
	if err := json.Unmarshal(text, &wire); err != nil {
		return Status{}, fmt.Errorf("parse status: %w", err)
	}
	description := strings.Builder{}
	appendText(&description, wire.Description, 0)
	s := Status{
		Version: wire.Version.Name, Protocol: wire.Version.Protocol,
		Description: strings.ToValidUTF8(description.String(), ""),
		Favicon:     parseFavicon(wire.Favicon),
	}
	if wire.Players == nil || wire.Players.Online == nil || wire.Players.Max == nil {
		return s, fmt.Errorf("parse status: %w", ErrNoPlayers)
	}
	online, capacity := *wire.Players.Online, *wire.Players.Max
	if online < 0 || online > math.MaxInt32 || capacity < 0 || capacity > math.MaxInt32 {
		return s, fmt.Errorf("parse status: %d of %d players can't be: %w", online, capacity, ErrNoPlayers)
	}
	s.Players, s.Capacity = int(online), int(capacity)
	return s, nil
}

// parseFavicon reads a picture that clients show. Other pictures are left out, because a
// picture is only shown.
func parseFavicon(raw json.RawMessage) string {
	var favicon string
	if json.Unmarshal(raw, &favicon) != nil || len(favicon) > maxFavicon || !strings.HasPrefix(favicon, FaviconPrefix) {
		return ""
	}
	// Some servers break it into lines.
	return strings.ReplaceAll(favicon, "\n", "")
}

// parseStatusString returns the one string of a status answer.
func parseStatusString(frame []byte) ([]byte, error) {
	id, size, err := ParseVarInt(frame)
	if err != nil {
		return nil, fmt.Errorf("packet number: %w", err)
	}
	if id != statusID {
		return nil, fmt.Errorf("packet %d is no status", id)
	}
	frame = frame[size:]
	length, size, err := ParseVarInt(frame)
	if err != nil {
		return nil, fmt.Errorf("string's length: %w", err)
	}
	frame = frame[size:]
	if length < 0 || int64(length) != int64(len(frame)) {
		return nil, fmt.Errorf("a string of %d bytes in a packet that has %d for it", length, len(frame))
	}
	if !utf8.Valid(frame) {
		return nil, errors.New("the string is not UTF-8")
	}
	if utf8.RuneCount(frame) > maxString {
		return nil, fmt.Errorf("the string has more than %d characters", maxString)
	}
	return frame, nil
}

// appendText adds a text component's plain text. A component is a string, an object with a text
// and more in "extra", or a list of either. Unreadable ones are left out, because the text is
// only shown.
func appendText(to *strings.Builder, raw json.RawMessage, depth int) {
	if len(raw) == 0 || depth > maxDepth || to.Len() >= maxText {
		return
	}
	switch raw[0] {
	case '"':
		var text string
		if json.Unmarshal(raw, &text) == nil {
			to.WriteString(text[:min(len(text), maxText-to.Len())])
		}
	case '[':
		var parts []json.RawMessage
		if json.Unmarshal(raw, &parts) == nil {
			for _, part := range parts {
				appendText(to, part, depth+1)
			}
		}
	case '{':
		var part struct {
			Text  json.RawMessage `json:"text"`
			Extra json.RawMessage `json:"extra"`
		}
		if json.Unmarshal(raw, &part) == nil {
			appendText(to, part.Text, depth+1)
			appendText(to, part.Extra, depth+1)
		}
	}
}
