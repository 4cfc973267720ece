package minecraft

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"unicode/utf8"
)

const (
	// handshakeID is the packet number of a handshake.
	handshakeID = 0
	// anyProtocol is what clients send that ask for a status to learn the protocol.
	anyProtocol = -1
	// nextStatus in a handshake means that a status request follows.
	nextStatus = 1
	// disconnectID is the packet number of a disconnect before the login is done.
	disconnectID = 0
	// maxDisconnect bounds a disconnect's text in bytes.
	maxDisconnect = 4096
	// headRoom is the most that precedes a packet's string: two lengths and a number.
	headRoom = 3 * maxVarInt
)

// AppendVarInt writes a VarInt.
func AppendVarInt(to []byte, value int32) []byte {
	return binary.AppendUvarint(to, uint64(uint32(value))) //nolint:gosec // the bits are what is written
}

// AppendStatusRequest writes all that a client sends to get a server's status: the handshake,
// with the host and port that the client dialled, and the request. The host has at most 255
// bytes.
func AppendStatusRequest(to []byte, host string, port uint16) []byte {
	host = host[:min(len(host), 255)]
	handshake := AppendVarInt(nil, handshakeID)
	handshake = AppendVarInt(handshake, anyProtocol)
	handshake = appendString(handshake, host)
	handshake = binary.BigEndian.AppendUint16(handshake, port)
	handshake = AppendVarInt(handshake, nextStatus)
	to = AppendFrame(to, handshake)
	return AppendFrame(to, AppendVarInt(nil, statusID))
}

// AppendStatus writes a status answer as a server sends it. One that is longer than clients
// accept is an error.
func AppendStatus(to []byte, s Status) ([]byte, error) {
	start := len(to)
	to = append(to, make([]byte, headRoom)...)
	to = appendQuoted(append(to, `{"version":{"name":`...), s.Version)
	to = strconv.AppendInt(append(to, `,"protocol":`...), int64(s.Protocol), 10)
	to = strconv.AppendInt(append(to, `},"players":{"max":`...), int64(s.Capacity), 10)
	to = strconv.AppendInt(append(to, `,"online":`...), int64(s.Players), 10)
	to = append(appendQuoted(append(to, `},"description":{"text":`...), s.Description), '}')
	if s.Favicon != "" {
		to = appendQuoted(append(to, `,"favicon":`...), s.Favicon)
	}
	to = append(to, '}')
	if length := len(to) - start - headRoom; length > maxString {
		return nil, fmt.Errorf("write status: %d bytes are more than %d", length, maxString)
	}
	return putHead(to, start, statusID), nil
}

// AppendLoginDisconnect writes what a server sends to a client that wants to log in and may
// not. The client shows the text, of which at most 4 KiB are sent.
func AppendLoginDisconnect(to []byte, text string) []byte {
	start := len(to)
	to = append(to, make([]byte, headRoom)...)
	to = appendQuoted(append(to, `{"text":`...), text[:min(len(text), maxDisconnect)])
	return putHead(append(to, '}'), start, disconnectID)
}

// putHead writes the frame's length, the packet's number and the string's length before a
// string that begins headRoom after start. They are known only at the end, and have as many
// bytes as they need.
func putHead(b []byte, start int, id int32) []byte {
	var room [headRoom]byte
	text := b[start+headRoom:]
	inner := AppendVarInt(AppendVarInt(room[:0], id), int32(len(text))) //nolint:gosec // checked, or cut, by who calls
	packet := int32(len(inner) + len(text))                             //nolint:gosec // as above
	n := len(AppendVarInt(b[:start], packet))
	n += copy(b[n:], inner)
	return b[:n+copy(b[n:], text)]
}

// appendQuoted writes a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendQuoted(to []byte, s string) []byte {
	to = append(to, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			to = append(to, '\\', byte(r))
		case r < ' ':
			to = append(to, '\\', 'u', '0', '0', "01"[r>>4], "0123456789abcdef"[r&0xf])
		default:
			to = utf8.AppendRune(to, r)
		}
	}
	return append(to, '"')
}

// AppendFrame writes a packet with its length before it.
func AppendFrame(to, packet []byte) []byte {
	to = AppendVarInt(to, int32(len(packet))) //nolint:gosec // packets here are short
	return append(to, packet...)
}

func appendString(to []byte, s string) []byte {
	to = AppendVarInt(to, int32(len(s))) //nolint:gosec // strings here are short
	return append(to, s...)
}
