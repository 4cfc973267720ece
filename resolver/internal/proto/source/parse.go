package source

import (
	"bytes"
)

// The first bytes of a message that stands alone, and the messages' numbers.
const (
	mark        = "\xff\xff\xff\xff"
	askInfo     = 'T'
	askPlayers  = 'U'
	askRules    = 'V'
	askOldToken = 'W'
	askOldPing  = 'i'
	infoText    = "Source Engine Query\x00"
	// challengeBytes is the size of a challenge.
	challengeBytes = 4
)

// query is a client's question to a server, and the challenge that it sent; nil: none.
type query struct {
	kind      byte
	challenge []byte
}

// parseQuery reads a query. Ok is false for anything else, and kind 0 for a query that is
// malformed, or of a kind that servers no longer answer.
func parseQuery(b []byte) (q query, ok bool) {
	if len(b) <= len(mark) || string(b[:len(mark)]) != mark {
		return query{}, false
	}
	kind, rest := b[len(mark)], b[len(mark)+1:]
	switch kind {
	case askInfo:
		rest, ok = bytes.CutPrefix(rest, []byte(infoText))
		if !ok || len(rest) != 0 && len(rest) < challengeBytes {
			return query{}, true
		}
	case askPlayers, askRules:
		if len(rest) < challengeBytes {
			return query{}, true
		}
	case askOldToken, askOldPing:
		return query{}, true
	default:
		return query{}, false
	}
	if len(rest) >= challengeBytes {
		q.challenge = rest[:challengeBytes]
	}
	q.kind = kind
	return q, true
}
