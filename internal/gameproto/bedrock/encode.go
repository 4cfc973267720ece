package bedrock

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// AppendPing writes an unconnected ping. The server's pong repeats the time, which may be any
// number; guid identifies the client.
func AppendPing(to []byte, time, guid uint64) []byte {
	to = append(to, pingID)
	to = binary.BigEndian.AppendUint64(to, time)
	to = append(to, magic[:]...)
	return binary.BigEndian.AppendUint64(to, guid)
}

// AppendPong writes a pong. Texts that are too long together are an error.
func AppendPong(to []byte, p Pong) ([]byte, error) {
	s := p.Status
	to = append(to, pongID)
	to = binary.BigEndian.AppendUint64(to, p.Time)
	to = binary.BigEndian.AppendUint64(to, p.GUID)
	to = append(to, magic[:]...)
	to = append(to, 0, 0)
	start := len(to)
	to = appendField(appendField(to, s.Edition), s.Name)
	to = append(strconv.AppendInt(to, int64(s.Protocol), 10), ';')
	to = appendField(to, s.Version)
	to = append(strconv.AppendInt(to, int64(s.Players), 10), ';')
	to = append(strconv.AppendInt(to, int64(s.Capacity), 10), ';')
	to = append(strconv.AppendUint(to, p.GUID, 10), ';')
	to = appendField(appendField(to, s.Level), s.Mode)
	length := len(to) - start
	if length > 1<<16-1 {
		return nil, fmt.Errorf("write pong: a text of %d bytes is too long", length)
	}
	binary.BigEndian.PutUint16(to[start-2:], uint16(length)) //nolint:gosec // checked above
	return to, nil
}

// appendField writes a text and the semicolon that ends it.
func appendField(to []byte, text string) []byte {
	for i := range len(text) {
		if text[i] == ';' {
			to = append(to, '\\')
		}
		to = append(to, text[i])
	}
	return append(to, ';')
}
