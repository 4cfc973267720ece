//go:build !linux

package devcluster

import (
	"errors"
	"os"
	"syscall"
)

// The package compiles elsewhere so that its command can say what it needs.

func detached(*os.File) *syscall.SysProcAttr { return nil }

func enterNetwork(*os.File) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

func keepFiles() error { return errors.ErrUnsupported }
