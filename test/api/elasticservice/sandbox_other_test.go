//go:build !linux

package elasticservice_test

import (
	"context"
	"errors"
)

const sandboxed = "DORMOUSE_TEST_SANDBOXED"

var errLinux = errors.New("these tests need the network namespaces of Linux")

func runSandboxed(context.Context, ...string) (int, error) { return 1, errLinux }

func setUpSandbox() error { return errLinux }
