package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"dormouse.dev/dormouse/sidecar/internal/backup/durable"
	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

// Markers, which are files in a restoration's directory. The package's comment says what each means.
const (
	markVerified = "verified"
	markMoved    = "moved"
	markDone     = "done"
	// filesDir has what is extracted.
	filesDir = "files"
)

// maxMarker bounds what is read of a marker.
const maxMarker = 64 << 10

// target is a disk that a restoration writes.
type target struct {
	name string
	root *os.Root
	// restore and before are the names of the restoration's directories.
	restore, before string
	// step is called before each change, for tests. It may be nil.
	step func(what string) error
}

func openTarget(d Disk, id string, step func(string) error) (*target, error) {
	root, err := os.OpenRoot(d.Path)
	if err != nil {
		return nil, fmt.Errorf("open disk %s: %w", d.Name, err)
	}
	return &target{name: d.Name, root: root, restore: restorePrefix + id, before: beforePrefix + id, step: step}, nil
}

// change is called before each change.
func (t *target) change(what string) error {
	if t.step == nil {
		return nil
	}
	return t.step(t.name + ": " + what)
}

// explain says which disk an error is about.
func (t *target) explain(err error) error {
	switch {
	case err == nil, errors.Is(err, fault.ErrCanceled), fault.IsFinal(err):
		return err
	case fault.IsFull(err):
		return fmt.Errorf("disk %s is full: a restoration needs room for the backup's files beside those that are there: %w", t.name, err)
	}
	return fmt.Errorf("disk %s: %w", t.name, err)
}

func (t *target) files() string { return path.Join(t.restore, filesDir) }

// stat is what has a name; nil: nothing has. A disk that can't be read may have anything.
func (t *target) stat(name string) (fs.FileInfo, error) {
	info, err := t.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing has it
	}
	return info, err //nolint:wrapcheck // explain does
}

// isDir reports whether a directory has that name, and no link to one.
func (t *target) isDir(name string) (bool, error) {
	info, err := t.stat(name)
	return info != nil && info.IsDir(), err
}

// has reports whether there is a marker.
func (t *target) has(mark string) (bool, error) {
	if is, err := t.isDir(t.restore); err != nil || !is {
		return false, err
	}
	info, err := t.stat(path.Join(t.restore, mark))
	return info != nil && info.Mode().IsRegular(), err
}

// anyHas reports whether a disk has a marker, and everyHas whether all have.
func anyHas(all []*target, mark string) (bool, error) {
	for _, t := range all {
		if has, err := t.has(mark); has || err != nil {
			return has, t.explain(err)
		}
	}
	return false, nil
}

func everyHas(all []*target, mark string) (bool, error) {
	for _, t := range all {
		if has, err := t.has(mark); !has || err != nil {
			return false, t.explain(err)
		}
	}
	return true, nil
}

// record is what a marker says of the restoration.
type record struct {
	Report Report `json:"report"`
	// Written are the disks that it writes.
	Written []string `json:"written"`
}

func (t *target) read(mark string) (record, error) {
	var r record
	f, err := t.root.Open(path.Join(t.restore, mark))
	if err != nil {
		return r, err //nolint:wrapcheck // explain does
	}
	defer f.Close()
	err = json.NewDecoder(io.LimitReader(f, maxMarker)).Decode(&r)
	return r, err //nolint:wrapcheck // explain does
}

// mark writes a marker, which is there whole or not at all, and durable.
func (t *target) mark(mark string, r record) error {
	if err := t.change("mark " + mark); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	name := path.Join(t.restore, mark)
	f, err := t.root.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := t.change("name mark " + mark); err != nil {
		return err
	}
	if err := t.root.Rename(name+".new", name); err != nil {
		return err //nolint:wrapcheck // explain does
	}
	return durable.SyncDir(t.root, t.restore)
}

func (t *target) unmark(mark string) error {
	if err := t.change("unmark " + mark); err != nil {
		return err
	}
	err := t.root.Remove(path.Join(t.restore, mark))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	return durable.SyncDir(t.root, t.restore)
}

// discard deletes the restoration's directory. A try that is killed meanwhile leaves one that nothing is
// taken from: "verified" goes first, and it counts only where all disks have it.
func (t *target) discard(ctx context.Context) error {
	is, err := t.isDir(t.restore)
	if err != nil {
		return err
	}
	if is {
		for _, mark := range []string{markVerified, markMoved} {
			if err := t.unmark(mark); err != nil {
				return err
			}
		}
		if err := t.removeAll(ctx, t.files()); err != nil {
			return err
		}
	}
	return t.removeAll(ctx, t.restore)
}

// removeAll deletes an entry with what is in it.
func (t *target) removeAll(ctx context.Context, name string) error {
	if err := t.change("remove " + name); err != nil {
		return err
	}
	dir, err := t.root.OpenRoot(path.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	defer dir.Close()
	return removeAll(ctx, dir, path.Base(name))
}

func removeAll(ctx context.Context, dir *os.Root, name string) error {
	if err := fault.Canceled(ctx); err != nil {
		return err
	}
	err := dir.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, statErr := dir.Lstat(name)
	if statErr != nil || !info.IsDir() {
		return err //nolint:wrapcheck // explain does
	}
	// Nothing in a directory that its owner may not write can be deleted.
	if info.Mode().Perm()&0o700 != 0o700 {
		if err := dir.Chmod(name, 0o700); err != nil {
			return err //nolint:wrapcheck // explain does
		}
	}
	sub, err := openDir(dir, name, info)
	if err != nil {
		return err
	}
	children, err := list(sub)
	for _, child := range children {
		if err != nil {
			break
		}
		err = removeAll(ctx, sub, child)
	}
	_ = sub.Close()
	if err != nil {
		return err
	}
	return dir.Remove(name) //nolint:wrapcheck // explain does
}

// rename moves an entry. A directory that its owner may not write can't be moved to another one.
func (t *target) rename(from, to string) error {
	if err := t.change("rename " + from); err != nil {
		return err
	}
	err := t.root.Rename(from, to)
	if !errors.Is(err, fs.ErrPermission) {
		return err //nolint:wrapcheck // explain does
	}
	info, statErr := t.root.Lstat(from)
	if statErr != nil || !info.IsDir() || info.Mode().Perm()&0o200 != 0 {
		return err //nolint:wrapcheck // explain does
	}
	mode := info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if err := t.root.Chmod(from, mode|0o200); err != nil {
		return err //nolint:wrapcheck // explain does
	}
	if err := t.root.Rename(from, to); err != nil {
		_ = t.root.Chmod(from, mode)
		return err //nolint:wrapcheck // explain does
	}
	return t.root.Chmod(to, mode) //nolint:wrapcheck // explain does
}

// isIgnored reports whether an owner or a bit of the mode that can't be set is left as it is: only root
// gives files away.
func isIgnored(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS)
}
