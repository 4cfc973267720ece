package quake3

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// AppendStatusRequest writes a getstatus with a challenge, a word that the
// answer repeats.
func AppendStatusRequest(to []byte, challenge string) []byte {
	return append(to, mark+"getstatus "+challenge...)
}

// AppendInfoRequest writes a getinfo with a challenge, a word that the answer
// repeats.
func AppendInfoRequest(to []byte, challenge string) []byte {
	return append(to, mark+"getinfo "+challenge...)
}

// AppendStatus writes an answer to getstatus. Characters with a meaning in the protocol are
// left out of names and values.
func AppendStatus(to []byte, s Status) []byte {
	to = append(to, mark+statusHead...)
	to = append(appendInfo(to, s.Info), '\n')
	for _, p := range s.Players {
		to = strconv.AppendInt(to, int64(p.Score), 10)
		to = strconv.AppendInt(append(to, ' '), int64(p.Ping), 10)
		to = append(to, ` "`+without(p.Name, "\"\r\n\x00")+"\"\n"...)
	}
	return to
}

// AppendInfo writes an answer to getinfo, as [AppendStatus] does.
func AppendInfo(to []byte, i Info) []byte {
	return appendInfo(append(to, mark+infoHead...), i)
}

// appendInfo writes the variables in the order of their names.
func appendInfo(to []byte, i Info) []byte {
	for _, name := range slices.Sorted(maps.Keys(i)) {
		to = append(to, `\`+without(name, "\\\r\n\x00")+`\`+without(i[name], "\\\r\n\x00")...)
	}
	return to
}

// without removes bytes. Names are in whatever encoding their players use.
func without(s, unwanted string) string {
	kept := make([]byte, 0, len(s))
	for i := range len(s) {
		if strings.IndexByte(unwanted, s[i]) < 0 {
			kept = append(kept, s[i])
		}
	}
	return string(kept)
}
