// Package durable makes what was written outlast a node that loses power.
package durable

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SyncDir makes durable what names a directory below root has.
func SyncDir(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err //nolint:wrapcheck // callers do
	}
	defer f.Close()
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		// Some file systems over a network have no such thing.
		return nil
	}
	return err //nolint:wrapcheck // callers do
}

// SyncDisk makes durable all that was written to the file system of root.
func SyncDisk(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err //nolint:wrapcheck // callers do
	}
	defer f.Close()
	for {
		if err := unix.Syncfs(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err //nolint:wrapcheck // callers do
		}
	}
}
