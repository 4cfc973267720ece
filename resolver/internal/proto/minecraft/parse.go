package minecraft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"

	wire "dormouse.dev/dormouse/internal/gameproto/minecraft"
)

const (
	handshakeID  = 0
	statusID     = 0
	pingID       = 1
	loginStartID = 0
	legacyID     = 0xfe
	// legacyNewer follows legacyID since 2012, and legacyNewest that since 2013.
	legacyNewer, legacyNewest = 0x01, 0xfa
)

const (
	// maxFrame bounds a packet. What proxies and mods append to the host may have a few
	// thousand bytes.
	maxFrame = 8 << 10
	// maxName is how many characters a player's name may have.
	maxName = 16
)

// What a client says in its handshake that it wants next.
const (
	// NextStatus is for the server's status.
	NextStatus = 1
	// NextLogin is for playing.
	NextLogin = 2
	// NextTransfer is for playing, after another server transferred the client here.
	NextTransfer = 3
)

// errMalformed means that bytes are not of the protocol, or that no client sends
// them.
var errMalformed = errors.New("this is not what a Minecraft client sends")

// Handshake is a client's first packet.
type Handshake struct {
	// Protocol is the number of the client's version.
	Protocol int32
	// Host is the address that the player typed, and what mods and proxies
	// appended to it. It is not a copy.
	Host []byte
	// Port is the port that the player typed, or the one that was looked up for the name.
	Port uint16
	// Next is one of NextStatus, NextLogin and NextTransfer.
	Next int32
}

// ServerName is the host without what mods and proxies appended to it, in lower case and
// without the dot that a name may end with. It is for comparing, not for passing on. TCPShield
// appends its part after three slashes, all others after a NUL.
func (h Handshake) ServerName() string {
	name, _, _ := bytes.Cut(h.Host, []byte{0})
	name, _, _ = bytes.Cut(name, []byte("///"))
	return strings.ToLower(strings.TrimSuffix(string(name), "."))
}

// ParseHandshake parses the handshake that b begins with and returns its size in bytes. The
// error wraps ErrShort of internal/gameproto/minecraft while more of it may follow.
func ParseHandshake(b []byte) (h Handshake, size int, err error) {
	packet, size, err := cutFrame(b)
	if err != nil {
		return Handshake{}, 0, err
	}
	r := reader{rest: packet}
	id := r.varInt()
	h = Handshake{Protocol: r.varInt(), Host: r.bytes(maxFrame)}
	if port := r.take(2); port != nil {
		h.Port = binary.BigEndian.Uint16(port)
	}
	h.Next = r.varInt()
	if r.bad || len(r.rest) > 0 || id != handshakeID || h.Next < NextStatus || h.Next > NextTransfer {
		return Handshake{}, 0, errMalformed
	}
	return h, size, nil
}

// The versions since which a client may send its UUID, and since which it always does: 1.19.3
// and 1.20.2.
const (
	mayKnowUUID = 761
	knowsUUID   = 764
	uuidBytes   = 16
)

// parseLoginStart reads the name of the player who wants to log in, and the UUID where the
// client's version sends it. What follows differs between versions and is left to the server.
func parseLoginStart(packet []byte, version int32) (name, uuid []byte, err error) {
	r := reader{rest: packet}
	id := r.varInt()
	name = r.bytes(maxName * utf8.UTFMax)
	if r.bad || id != loginStartID || len(name) == 0 || !utf8.Valid(name) || utf8.RuneCount(name) > maxName {
		return nil, nil, errMalformed
	}
	if version >= knowsUUID || version >= mayKnowUUID && r.varInt() == 1 {
		uuid = r.take(uuidBytes)
	}
	return name, uuid, nil
}

// isStatusRequest reports whether a packet asks for the status.
func isStatusRequest(packet []byte) bool { return len(packet) == 1 && packet[0] == statusID }

// isPing reports whether a packet is a ping: a number of eight bytes.
func isPing(packet []byte) bool { return len(packet) == 1+8 && packet[0] == pingID }

// isLegacy reports whether b is a status query of clients before 1.7, or of newer ones that got
// no answer. Newer is set for clients since 1.4. A handshake of 254 bytes differs only in its
// third byte: with fewer bytes, maybe is set.
func isLegacy(b []byte) (is, newer, maybe bool) {
	switch {
	case b[0] != legacyID:
		return false, false, false
	case len(b) == 1:
		return true, false, true
	case b[1] == legacyNewer && len(b) == 2:
		return true, true, true
	}
	newest := b[1] == legacyNewer && b[2] == legacyNewest
	return newest, newest, false
}

// cutFrame cuts the first packet off b, and returns its size including the length before it.
func cutFrame(b []byte) (packet []byte, size int, err error) {
	length, size, err := wire.ParseVarInt(b)
	if errors.Is(err, wire.ErrShort) {
		return nil, 0, wire.ErrShort
	}
	// Up to the login there are only packets 0 and 1: anything else is found out before the
	// whole packet is there.
	if err != nil || length < 1 || length > maxFrame || len(b) > size && b[size] > pingID {
		return nil, 0, errMalformed
	}
	if len(b) < size+int(length) {
		return nil, 0, wire.ErrShort
	}
	return b[size : size+int(length)], size + int(length), nil
}

// reader reads values from the front of a whole packet. After a failure it reads zeroes.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad = true
		return nil
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) varInt() int32 {
	value, size, err := wire.ParseVarInt(r.rest)
	if r.bad || err != nil {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return value
}

// bytes reads a string of at most limit bytes.
func (r *reader) bytes(limit int) []byte {
	length := r.varInt()
	if length < 0 || int(length) > limit {
		r.bad = true
		return nil
	}
	return r.take(int(length))
}
