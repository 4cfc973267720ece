//go:build !linux

package host

import (
	"errors"
	"os"
	"syscall"
)

// The package compiles elsewhere so that the command devcluster can say what it needs.

func detached(*os.File) *syscall.SysProcAttr { return nil }

func joinNetwork(*os.File) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

func keepFiles() error { return errors.ErrUnsupported }
