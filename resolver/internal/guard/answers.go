package guard

import (
	"net/netip"
	"time"
)

// Bounds of answers that are larger than their question and go to an address that is not
// validated: enough for the server lists of one network, and too little to flood it with.
var (
	answersPerPrefix  = rate{50, 5 * time.Second}
	answersPerService = rate{1000, 5 * time.Second}
)

// MaxUnvalidated is how large such an answer may be, in bytes.
const MaxUnvalidated = 512

// Answer reports whether such an answer may be given.
func (g *Guard) Answer(rules *Rules, from netip.Addr, now time.Time) bool {
	at := since(now)
	if rules.SourceIPsPreserved && !g.byPrefix.take(prefixOf(from), at, answersPerPrefix) {
		return false
	}
	return g.answers.take(at, answersPerService)
}
