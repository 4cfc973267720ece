package bedrock

import (
	"bytes"
	"encoding/binary"
)

// The numbers of the messages with which clients connect.
const (
	// pingOpenID is a ping that only servers with room for a player answer.
	pingOpenID = 0x02
	request1ID = 0x05
	request2ID = 0x07
	noRoomID   = 0x14
)

const (
	// pingBytes is the size of a ping: its number, the time, the magic and the
	// client's GUID.
	pingBytes = 1 + 8 + 16 + 8
	// requestHead is the least size of both requests for a connection.
	requestHead = 1 + 16 + 1
)

// ParsePing reads an unconnected ping, of either kind, and returns its time.
func ParsePing(b []byte) (time uint64, ok bool) {
	if len(b) < pingBytes || b[0] != pingID && b[0] != pingOpenID || !bytes.Equal(b[9:25], magic[:]) {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[1:]), true
}

// IsConnectionRequest reports whether a message asks for a connection: the first or
// the second request for one.
func IsConnectionRequest(b []byte) bool {
	return len(b) >= requestHead && (b[0] == request1ID || b[0] == request2ID) && bytes.Equal(b[1:17], magic[:])
}

// AppendNoRoom writes a server's answer to a request for a connection when it has no room.
func AppendNoRoom(to []byte, guid uint64) []byte {
	to = append(append(to, noRoomID), magic[:]...)
	return binary.BigEndian.AppendUint64(to, guid)
}
