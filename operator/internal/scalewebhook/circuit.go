package scalewebhook

import (
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// failuresToOpen is how many failures on end open a circuit.
const failuresToOpen = 3

// newBackoff is how long circuits stay open: 5 s, then twice as long after each failure of
// the question that is let through, up to between 4 and 5 minutes.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Second, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 250 * time.Second}
}

// circuit decides whether an endpoint is asked. Closed, it lets all questions through. Open, none
// until a time; then one, the trial, whose outcome closes it or opens it for longer.
type circuit struct {
	mu sync.Mutex
	// failures is how many there were since the last success, while closed.
	failures int
	// last is the failure that opened it; nil while closed.
	last  *Error
	until time.Time
	trial bool
	// round counts openings and closings. Outcomes of questions asked in an earlier one change nothing.
	round   int
	backoff wait.Backoff
}

// pass is a question that was let through.
type pass struct {
	circuit *circuit
	round   int
	trial   bool
}

// state returns the error of an open circuit, and nil if a question may be let through.
func (c *circuit) state(now time.Time) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stateLocked(now)
}

func (c *circuit) stateLocked(now time.Time) *Error {
	if c.last == nil || !c.trial && !now.Before(c.until) {
		return nil
	}
	return c.openError()
}

// openError is the error of all who ask while it is open.
func (c *circuit) openError() *Error {
	e := failure(CircuitOpen, "It keeps failing and isn't asked again before %s. %s",
		c.until.UTC().Format(time.RFC3339), c.last.Message)
	e.Until, e.cause = c.until, c.last
	return e
}

// begin lets a question through, or returns why not. end must be called for one that was.
func (c *circuit) begin(now time.Time) (pass, *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if open := c.stateLocked(now); open != nil {
		return pass{}, open
	}
	c.trial = c.last != nil
	return pass{circuit: c, round: c.round, trial: c.trial}, nil
}

// end takes a question's outcome, and returns it. The failure that opens a circuit, or keeps it open, is
// returned as those after it will be, so that a status that shows it changes once.
func (p pass) end(now time.Time, err error) error {
	c := p.circuit
	c.mu.Lock()
	defer c.mu.Unlock()
	e, _ := errors.AsType[*Error](err)
	if p.round != c.round {
		return err
	}
	if p.trial {
		c.trial = false
	}
	switch {
	case err == nil:
		c.failures = 0
		if p.trial {
			c.last = nil
			c.round++
		}
		return nil
	case e == nil || e.Reason == Cancelled || e.Reason == BadEndpoint:
		return err // says nothing of the webhook
	}
	if c.failures++; !p.trial && c.failures < failuresToOpen {
		return err
	}
	if c.last == nil {
		c.backoff = newBackoff()
	}
	c.failures = 0
	c.last = e
	c.until = now.Add(c.backoff.Step())
	c.round++
	return c.openError()
}
