package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ReplaceLink makes a link, or lets one that is there lead elsewhere.
func ReplaceLink(path, target string) error {
	if current, err := os.Readlink(path); err == nil && current == target {
		return nil
	}
	if err := IgnoreGone(os.Remove(path)); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("link %s: %w", path, err)
	}
	return nil
}

// IgnoreGone drops the error that says that a file isn't there, or a cgroup no more.
func IgnoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}
