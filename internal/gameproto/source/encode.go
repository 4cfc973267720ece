package source

import (
	"encoding/binary"
	"strings"
)

// AppendInfoRequest writes a request for a server's info, with the challenge from the server's
// last answer, or nil in the first request.
func AppendInfoRequest(to []byte, challenge *Challenge) []byte {
	to = append(to, whole...)
	to = append(to, infoRequest)
	to = append(to, infoText...)
	if challenge != nil {
		to = append(to, challenge[:]...)
	}
	return to
}

// AppendAnswer writes an answer as a server sends it, with a port, keywords and
// the game's ID where the info has them. Strings end at their first zero byte.
func AppendAnswer(to []byte, a Answer) []byte {
	to = append(to, whole...)
	if a.Challenge != nil {
		to = append(to, challengeMsg)
		return append(to, a.Challenge[:]...)
	}
	i := a.Info
	to = append(to, infoAnswer, i.Protocol)
	for _, s := range []string{i.Name, i.Map, i.Folder, i.Game} {
		to = appendString(to, s)
	}
	to = binary.LittleEndian.AppendUint16(to, i.AppID)
	to = append(to, i.Players, i.Capacity, i.Bots, i.Type, i.OS, bit(i.Password), bit(i.Secure))
	if i.AppID == theShip {
		to = append(to, 0, 0, 0)
	}
	to = appendString(to, i.Version)
	flag := len(to)
	to = append(to, 0)
	if i.Port != 0 {
		to[flag] |= extraPort
		to = binary.LittleEndian.AppendUint16(to, i.Port)
	}
	if i.Keywords != "" {
		to[flag] |= extraKeywords
		to = appendString(to, i.Keywords)
	}
	if i.GameID != 0 {
		to[flag] |= extraGameID
		to = binary.LittleEndian.AppendUint64(to, i.GameID)
	}
	return to
}

func appendString(to []byte, s string) []byte {
	s, _, _ = strings.Cut(s, "\x00")
	return append(append(to, s[:min(len(s), maxString)]...), 0)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
