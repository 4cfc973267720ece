package minecraft

import (
	"encoding/binary"
	"strconv"
	"unicode/utf16"

	wire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// defaultMaxPlayers is the limit of servers that nobody configured.
	defaultMaxPlayers = 20
	// anyProtocol is what today's servers answer old clients: no client has it.
	anyProtocol = 127
	// maxMessage bounds a message of the day in bytes.
	maxMessage = 1024
	// maxLegacy is how many code units a legacy answer may have.
	maxLegacy = 255
	// section begins a colour, and separates the fields of the oldest answers.
	section = '§'
)

// appendStatus answers a status request. Where the server's protocol isn't known it is the
// client's own: lists show other versions as servers that can't be joined, and a player who
// joins finds out.
func appendStatus(to []byte, c proto.Client, protocol int32) []byte {
	a := c.Service.Answers
	status := wire.Status{
		Version: version(a), Protocol: int(protocol), Capacity: maxPlayers(a), Favicon: a.Favicon,
	}
	if a.Protocol != 0 {
		status.Protocol = int(a.Protocol)
	}
	var message [maxMessage]byte
	status.Description = string(c.AppendMessage(message[:0], maxMessage))
	b, err := wire.AppendStatus(to, status)
	if err != nil {
		// Only a picture can have made it too long.
		status.Favicon = ""
		b, _ = wire.AppendStatus(to, status)
	}
	return b
}

// appendLegacyStatus answers a legacy ping: with protocol and version to clients
// since 1.4, without to older ones.
func appendLegacyStatus(to []byte, c proto.Client, newer bool) []byte {
	a := c.Service.Answers
	var message [maxMessage]byte
	text := c.AppendMessage(message[:0], maxMessage)
	w := legacyWriter{to: append(to, 0xff, 0, 0), start: len(to) + 1}
	if !newer {
		w.field(string(text), maxLegacy-2*(1+len("2147483647")), section)
		w.put(section)
		w.field("0", 1, section)
		w.put(section)
		w.field(strconv.Itoa(maxPlayers(a)), maxLegacy, section)
		return w.done()
	}
	protocol := anyProtocol
	if a.Protocol != 0 {
		protocol = int(a.Protocol)
	}
	w.put(section)
	w.put('1')
	w.put(0)
	w.field(strconv.Itoa(protocol), maxLegacy, 0)
	w.put(0)
	w.field(version(a), 32, 0)
	w.put(0)
	w.field(string(text), 160, 0)
	w.put(0)
	w.field("0", 1, 0)
	w.put(0)
	w.field(strconv.Itoa(maxPlayers(a)), maxLegacy, 0)
	return w.done()
}

func version(a proto.Answers) string {
	if a.Version == "" {
		return "Minecraft"
	}
	return a.Version
}

func maxPlayers(a proto.Answers) int {
	if a.MaxPlayers == 0 {
		return defaultMaxPlayers
	}
	return int(a.MaxPlayers)
}

// legacyWriter writes a string of UTF-16 code units with their count before it.
type legacyWriter struct {
	to    []byte
	start int
}

func (w *legacyWriter) put(unit uint16) { w.to = binary.BigEndian.AppendUint16(w.to, unit) }

// field writes at most limit code units of a text, without the character that separates fields.
func (w *legacyWriter) field(text string, limit int, without rune) {
	for _, r := range text {
		units := utf16.RuneLen(r)
		if r == without || units > limit {
			continue
		}
		limit -= units
		if high, low := utf16.EncodeRune(r); units == 2 {
			w.put(uint16(high)) //nolint:gosec // a surrogate has 16 bits
			w.put(uint16(low))  //nolint:gosec // as above
			continue
		}
		w.put(uint16(r)) //nolint:gosec // one unit is enough for it
	}
}

// done writes the count.
func (w *legacyWriter) done() []byte {
	binary.BigEndian.PutUint16(w.to[w.start:], uint16((len(w.to)-w.start-2)/2)) //nolint:gosec // the fields are bounded
	return w.to
}
