// Package bedrock has the format of RakNet's unconnected ping, by which clients of Minecraft's
// Bedrock edition query a server: the client's question and the server's answer, both read and
// written. It handles bytes only; sockets and timeouts are its callers'.
package bedrock

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// The numbers of the messages.
const (
	pingID = 0x01
	pongID = 0x1c
)

// magic is how RakNet distinguishes its messages outside of connections from noise.
var magic = [16]byte{
	0x00, 0xff, 0xff, 0x00, 0xfe, 0xfe, 0xfe, 0xfe,
	0xfd, 0xfd, 0xfd, 0xfd, 0x12, 0x34, 0x56, 0x78,
}

const (
	// pongHead is the size of what precedes a pong's text: the number, the time, the server's
	// GUID, the magic and the text's length.
	pongHead = 1 + 8 + 8 + 16 + 2
	// neededFields is how many fields of a status every server sends.
	neededFields = 6
	// maxFields is how many fields are read; newer servers may have more.
	maxFields = 12
)

// Pong is the answer to a ping.
type Pong struct {
	// Time is the ping's time.
	Time uint64
	// GUID identifies the server.
	GUID uint64
	// Status is the server's status.
	Status Status
}

// Status is what a server reports to clients that refresh a server list.
type Status struct {
	// Edition is MCPE, or MCEE for schools.
	Edition string
	// Name is the message of the day, and Level the name of the world, which
	// lists show as a second line.
	Name, Level string
	// Version is the name of the server's version, and Protocol its number.
	Version  string
	Protocol int
	// Players is how many play, and Capacity how many may. Both are 0 or more.
	Players, Capacity int
	// Mode is the name of the game's mode; it may be empty.
	Mode string
}

// ParsePong reads an unconnected pong.
func ParsePong(b []byte) (Pong, error) {
	if len(b) < pongHead {
		return Pong{}, fmt.Errorf("parse pong: %d bytes are fewer than %d", len(b), pongHead)
	}
	if b[0] != pongID {
		return Pong{}, fmt.Errorf("parse pong: message %#02x is none", b[0])
	}
	if !bytes.Equal(b[17:33], magic[:]) {
		return Pong{}, errors.New("parse pong: it lacks RakNet's magic")
	}
	length, text := int(binary.BigEndian.Uint16(b[33:])), b[pongHead:]
	if length > len(text) {
		return Pong{}, fmt.Errorf("parse pong: a text of %d bytes in a message that has %d for it", length, len(text))
	}
	status, err := parseStatus(text[:length])
	if err != nil {
		return Pong{}, fmt.Errorf("parse pong: %w", err)
	}
	return Pong{Time: binary.BigEndian.Uint64(b[1:]), GUID: binary.BigEndian.Uint64(b[9:]), Status: status}, nil
}

// parseStatus reads the fields of a pong's text.
func parseStatus(text []byte) (Status, error) {
	fields := splitFields(text)
	if len(fields) < neededFields {
		return Status{}, fmt.Errorf("%d fields are fewer than %d", len(fields), neededFields)
	}
	s := Status{Edition: fields[0], Name: fields[1], Version: fields[3]}
	// It is only shown, and some servers send something else.
	s.Protocol, _ = strconv.Atoi(fields[2])
	if s.Edition != "MCPE" && s.Edition != "MCEE" {
		return Status{}, fmt.Errorf("%.16q is no edition of Minecraft", s.Edition)
	}
	for _, number := range []struct {
		what  string
		field string
		to    *int
	}{{"players", fields[4], &s.Players}, {"capacity", fields[5], &s.Capacity}} {
		value, err := strconv.ParseUint(number.field, 10, 31)
		if err != nil {
			return Status{}, fmt.Errorf("%s: %.16q is no number from 0 to %d", number.what, number.field, math.MaxInt32)
		}
		*number.to = int(value)
	}
	if len(fields) > 7 {
		s.Level = fields[7]
	}
	if len(fields) > 8 {
		s.Mode = fields[8]
	}
	return s, nil
}

// splitFields splits at semicolons. One after a backslash belongs to the field.
func splitFields(text []byte) []string {
	fields := make([]string, 0, maxFields)
	var field []byte
	for i := 0; i < len(text) && len(fields) < maxFields; i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == ';':
			field = append(field, ';')
			i++
		case text[i] == ';':
			fields = append(fields, string(field))
			field = field[:0]
		default:
			field = append(field, text[i])
		}
	}
	if len(field) > 0 && len(fields) < maxFields {
		fields = append(fields, string(field))
	}
	return fields
}
