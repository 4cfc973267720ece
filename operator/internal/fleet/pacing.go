package fleet

import "time"

// A pass looks at all of a Fleet's Servers, and each change of one causes a pass. So a pass that
// took long is followed by a rest, and a Fleet of ten thousand costs no larger part of a processor
// than one of a hundred.
const (
	// restFactor is how many times as long as a pass the rest after it is.
	restFactor = 50
	// Rests shorter than minRest aren't taken, and none is longer than maxRest.
	minRest = 20 * time.Millisecond
	maxRest = 2 * time.Second
)

// pacing is the memory of a Fleet's last pass.
type pacing struct {
	generation int64
	until      time.Time
}

// rest is how long the next pass is to wait; 0 or less: it needn't. A changed Fleet never waits.
func (p *pacing) rest(now time.Time, generation int64) time.Duration {
	if p.generation != generation {
		return 0
	}
	return p.until.Sub(now)
}

// took notes a pass, and how long it worked without the calls to the API server.
func (p *pacing) took(now time.Time, generation int64, worked time.Duration) {
	p.generation, p.until = generation, time.Time{}
	if rest := min(worked*restFactor, maxRest); rest >= minRest {
		p.until = now.Add(rest)
	}
}
