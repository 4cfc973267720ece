//go:build !linux

package sandbox

import (
	"context"
	"errors"
)

// In reports whether this process is in a sandbox.
func In() bool { return false }

// Run fails: there are network namespaces on Linux only.
func Run(context.Context, []string, ...string) (int, error) {
	return 1, errors.New("run in a network namespace: that needs Linux")
}

// SetUp fails as well.
func SetUp() error { return errors.New("set up a network namespace: that needs Linux") }
