package reportkeys

import (
	"crypto/sha256"
	"sync"
	"time"

	"dormouse.dev/dormouse/internal/reporttoken"
)

const (
	// keepTime is how long a token that was verified is kept after its last use, and up to twice that: a sidecar
	// uses one for two minutes, with which it reports every 20 seconds.
	keepTime = 40 * time.Second
	// mostKept bounds how many are kept of one such time.
	mostKept = 20_000
)

// verified has the tokens that were verified not long ago, since each is used a few times.
type verified struct {
	mu sync.Mutex
	// keys are those that the tokens were verified with.
	keys *keys
	// began is when young did. Those of before are in old.
	began      time.Time
	young, old map[sum]reporttoken.Claim
}

// sum is the first half of a token's SHA-256. Somebody who knows no token can't find another one with its sum.
type sum [sha256.Size / 2]byte

func sumOf(token string) sum {
	whole := sha256.Sum256([]byte(token))
	return sum(whole[:])
}

// find is what a token says that was verified with these keys, and that is good now.
func (v *verified) find(token sum, with *keys, now time.Time) (c reporttoken.Claim, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.keys != with {
		return c, false
	}
	if c, ok = v.young[token]; !ok {
		if c, ok = v.old[token]; ok && len(v.young) < mostKept {
			v.young[token] = c
		}
	}
	return c, ok && c.ValidAt(now)
}

// add takes in a token that was verified.
func (v *verified) add(token sum, c reporttoken.Claim, with *keys, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.keys != with:
		v.keys, v.began, v.young, v.old = with, now, map[sum]reporttoken.Claim{}, nil
	case now.Sub(v.began) >= keepTime || len(v.young) >= mostKept:
		v.began, v.young, v.old = now, map[sum]reporttoken.Claim{}, v.young
	}
	v.young[token] = c
}
