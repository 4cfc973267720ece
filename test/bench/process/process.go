// Package process has what benchmarks need of the processes that they start: their end, and
// what they use.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// stopTime is how long a process has to end by itself.
const stopTime = 20 * time.Second

// End ends a process. What it ends with is to come from ended.
func End(process *exec.Cmd, ended <-chan error, what string) error {
	if err := process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", what, err)
	}
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s ended: %w", what, err)
		}
		return nil
	case <-time.After(stopTime):
		// Go shows what it was at.
		err := errors.Join(fmt.Errorf("%s didn't end within %s of SIGTERM", what, stopTime), process.Process.Signal(syscall.SIGQUIT))
		select {
		case <-ended:
			return err
		case <-time.After(stopTime):
			return errors.Join(err, process.Process.Kill())
		}
	}
}

// Until asks ten times a second whether something is so.
func Until(ctx context.Context, within time.Duration, what string, ok func() (bool, error)) error {
	return UntilEvery(ctx, 100*time.Millisecond, within, what, ok)
}

// UntilEvery asks, so often, whether something is so.
func UntilEvery(ctx context.Context, every, within time.Duration, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if is, err := ok(); is || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}
