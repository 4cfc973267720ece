package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	// promptly is for what the operator does by itself at once. It is long
	// because machines that build are slow, not because the operator is.
	promptly = 15 * time.Second
	// afterSettling is for a sleep: the triggers are read, and five seconds are
	// kube-proxy's.
	afterSettling = 30 * time.Second
	// afterLingering is for a resolver's endpoint that stays for ten seconds
	// after its last client.
	afterLingering = 30 * time.Second
	// afterElection is for a new leader: the last one's lease ends after 15 s.
	afterElection = 40 * time.Second
	// pollInterval is how often is looked.
	pollInterval = 20 * time.Millisecond
)

// fatal is an error that no waiting mends.
type fatal struct{ error }

// poll calls check until it returns nil or a fatal error, or ctx ends.
func poll(ctx context.Context, check func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check()
		var f fatal
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// eventually waits until check returns nil.
func eventually(t *testing.T, within time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	// The last question must not fail because of the deadline itself.
	if err := poll(ctx, func() error { return check(t.Context()) }); err != nil {
		t.Fatalf("%s: not within %s: %v", what, within, err)
	}
}

// consistently fails when check returns an error before the time is over. It is
// for what must not happen.
func consistently(t *testing.T, during time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var failed error
	_ = poll(ctx, func() error {
		if failed = check(t.Context()); failed != nil {
			return fatal{failed}
		}
		return errors.New("go on")
	})
	if failed != nil {
		t.Fatalf("%s: %v", what, failed)
	}
}
