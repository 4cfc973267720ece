package guard

import (
	"net/netip"
	"time"
)

// Answers that are larger than their question, and go to who may not be where it
// says: enough for the server lists of one network, and little to flood it with.
var (
	answersPerPrefix  = rate{50, 5 * time.Second}
	answersPerService = rate{1000, 5 * time.Second}
)

// MaxUnproven is how large such an answer may be, in bytes.
const MaxUnproven = 512

// Answer reports whether such an answer may be given.
func (g *Guard) Answer(rules *Rules, from netip.Addr, now time.Time) bool {
	at := since(now)
	if rules.SourcesKnown && !g.byPrefix.take(prefixOf(from), at, answersPerPrefix) {
		return false
	}
	return g.answers.take(at, answersPerService)
}
