package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"

	"dormouse.dev/dormouse/sidecar/internal/backup/durable"
)

// move has what was extracted and what is on the disks change places. If a disk refuses, all are as they
// were after that.
func (r *restoration) move(ctx context.Context, begun record) (Report, error) {
	written, err := r.written(begun)
	if err != nil {
		return Report{}, err
	}
	done, err := anyHas(written, markDone)
	if err != nil {
		return Report{}, err
	}
	if !done {
		for _, t := range written {
			err := t.explain(t.swap())
			if err == nil {
				continue
			}
			r.log.Error(err, "It can't go on, and is undone")
			if undoErr := r.undo(ctx, written); undoErr != nil {
				return Report{}, fmt.Errorf("%w; the disks are half moved, and another try goes on from there: %w", err, undoErr)
			}
			if tidyErr := r.discard(ctx, written); tidyErr != nil {
				r.log.Error(tidyErr, "What was extracted isn't deleted")
			}
			return Report{}, err
		}
	}
	// From here on it isn't undone.
	for _, t := range written {
		has, err := t.has(markDone)
		if err == nil && !has {
			err = t.mark(markDone, begun)
		}
		if err != nil {
			return Report{}, t.explain(err)
		}
	}
	for _, t := range written {
		for _, mark := range []string{markVerified, markMoved} {
			if err := t.unmark(mark); err != nil {
				return Report{}, t.explain(err)
			}
		}
		if err := t.removeAll(ctx, t.files()); err != nil {
			return Report{}, t.explain(err)
		}
		if err := t.dropEmpty(); err != nil {
			return Report{}, t.explain(err)
		}
	}
	return begun.Report, nil
}

// dropEmpty deletes the directory for what was on the disk before, where nothing was: nobody deletes that of
// a new disk later.
func (t *target) dropEmpty() error {
	if err := t.change("remove " + t.before); err != nil {
		return err
	}
	err := t.root.Remove(t.before)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err //nolint:wrapcheck // explain does
}

// swap moves what is on a disk aside, and up what was extracted. It goes on where an earlier try ended.
func (t *target) swap() error {
	moved, err := t.has(markMoved)
	if err != nil {
		return err
	}
	if !moved {
		if err := t.aside(); err != nil {
			return err
		}
		if err := t.mark(markMoved, record{}); err != nil {
			return err
		}
	}
	return t.moveAll(t.files(), ".")
}

// aside moves what is on the disk into the directory for that.
func (t *target) aside() error {
	is, err := t.isDir(t.before)
	if err != nil {
		return err
	}
	if !is {
		if err := t.change("mkdir " + t.before); err != nil {
			return err
		}
		if err := t.root.Mkdir(t.before, 0o770); err != nil {
			return err //nolint:wrapcheck // explain does
		}
	}
	return t.moveAll(".", t.before)
}

// moveAll moves what is in one directory to another, and makes that durable. What stays at the disk's
// top stays there.
func (t *target) moveAll(from, to string) error {
	dir, err := t.root.OpenRoot(from)
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	defer dir.Close()
	all, err := list(dir)
	if err != nil {
		return err
	}
	for _, name := range all {
		if from == "." && stays(name) {
			continue
		}
		if err := t.rename(path.Join(from, name), path.Join(to, name)); err != nil {
			return err
		}
	}
	return errors.Join(durable.SyncDir(t.root, to), durable.SyncDir(t.root, from))
}

// undo puts all disks back to what they had. One that is killed leaves what swap goes on from.
func (r *restoration) undo(ctx context.Context, targets []*target) error {
	var begun []*target
	for _, t := range targets {
		is, err := t.isDir(t.restore)
		if err != nil {
			return t.explain(err)
		}
		if is {
			begun = append(begun, t)
		}
	}
	for _, t := range begun {
		if err := t.back(); err != nil {
			return t.explain(err)
		}
	}
	return r.discard(ctx, begun)
}

// back is the other way of swap.
func (t *target) back() error {
	moved, err := t.has(markMoved)
	if err != nil {
		return err
	}
	if moved {
		if err := t.moveAll(".", t.files()); err != nil {
			return err
		}
		if err := t.unmark(markMoved); err != nil {
			return err
		}
	}
	is, err := t.isDir(t.before)
	if err != nil || !is {
		return err
	}
	if err := t.moveAll(t.before, "."); err != nil {
		return err
	}
	if err := t.change("remove " + t.before); err != nil {
		return err
	}
	return t.root.Remove(t.before) //nolint:wrapcheck // explain does
}
