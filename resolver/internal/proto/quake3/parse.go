package quake3

import "bytes"

// mark begins a message that belongs to no connection.
const mark = "\xff\xff\xff\xff"

// query is what a client asks of a server.
type query int

const (
	notQuery query = iota
	getStatus
	getInfo
)

// parseQuery reads a query and its challenge, as much of it as fits an answer, which repeats
// it. The challenge is not a copy.
func parseQuery(b []byte) (q query, challenge []byte) {
	rest, ok := bytes.CutPrefix(b, []byte(mark))
	if !ok {
		return notQuery, nil
	}
	end := bytes.IndexFunc(rest, func(r rune) bool { return r <= ' ' })
	if end < 0 {
		end = len(rest)
	}
	word, rest := rest[:end], rest[end:]
	switch {
	case equalFold(word, "getstatus"):
		q = getStatus
	case equalFold(word, "getinfo"):
		q = getInfo
	default:
		return notQuery, nil
	}
	rest = bytes.TrimLeft(rest, " ")
	for i, c := range rest {
		if c <= ' ' || c >= 0x7f || c == '\\' || c == '"' || c == ';' || i == maxChallenge {
			return q, rest[:i]
		}
	}
	return q, rest
}

// equalFold reports whether a word equals one in lower case, ignoring case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
