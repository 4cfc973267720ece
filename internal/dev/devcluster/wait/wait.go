// Package wait waits for what the parts of a cluster do in their own time. It looks again
// and again, within a limit, and says what was wrong last.
package wait

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Until calls check every 50 ms until it succeeds, and returns its last error
// when the time is up. An error made with [Final] ends it at once.
func Until(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// A check that hangs is one that failed, and its own error says more
		// than the deadline's.
		err := check(waiting)
		var f *finalError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &f):
			return f.err
		}
		select {
		case <-waiting.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("gave up after %s: %w", limit, err)
		case <-tick.C:
		}
	}
}

// finalError is one that no waiting mends.
type finalError struct{ err error }

func (f *finalError) Error() string { return f.err.Error() }

// Final marks an error as one that no waiting mends.
func Final(err error) error { return &finalError{err} }

// Cause is the error that [Final] marked, or err itself if none was.
func Cause(err error) error {
	var f *finalError
	if errors.As(err, &f) {
		return f.err
	}
	return err
}
