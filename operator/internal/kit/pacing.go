package kit

import "time"

// A pass looks at all children of an object, such as a Fleet's Servers, and each change of one causes a
// pass. So a pass that took long is followed by a rest, and an object with ten thousand costs no larger
// part of a processor than one with a hundred.
const (
	// restFactor is how many times as long as a pass the rest after it is.
	restFactor = 50
	// Rests shorter than minRest aren't taken, and none is longer than maxRest.
	minRest = 20 * time.Millisecond
	maxRest = 2 * time.Second
)

// Pacing is the memory of an object's last pass.
type Pacing struct {
	generation int64
	until      time.Time
}

// Rest is how long the next pass is to wait; 0 or less: it needn't. A changed object never waits.
func (p *Pacing) Rest(now time.Time, generation int64) time.Duration {
	if p.generation != generation {
		return 0
	}
	return p.until.Sub(now)
}

// Took notes a pass, and how long it worked without the calls to the API server.
func (p *Pacing) Took(now time.Time, generation int64, worked time.Duration) {
	p.generation, p.until = generation, time.Time{}
	if rest := min(worked*restFactor, maxRest); rest >= minRest {
		p.until = now.Add(rest)
	}
}
