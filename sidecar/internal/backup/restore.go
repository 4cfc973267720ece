package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/sidecar/internal/backup/durable"
	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

// restoration is one try to restore.
type restoration struct {
	opts Options
	log  logr.Logger
	all  []*target
	// settles is set where it was given up. A disk that it wrote may be gone then, or made anew.
	settles bool
}

// openTargets opens the disks. Its second result closes them.
func openTargets(o Options, step func(string) error) ([]*target, func(), error) {
	var all []*target
	closeAll := func() {
		for _, t := range all {
			_ = t.root.Close()
		}
	}
	for _, d := range o.Disks {
		t, err := openTarget(d, o.ID, step)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		all = append(all, t)
	}
	return all, closeAll, nil
}

// mayBeBetween reports whether a disk that can't be opened may be between. One that isn't there is not, nor one that
// no try could open.
func mayBeBetween(err error) bool {
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, fs.ErrPermission)
}

// restore puts an archive, or other disks, in place of what is on the disks.
func restore(ctx context.Context, o Options, log logr.Logger, step func(string) error) (Report, error) {
	all, closeAll, err := openTargets(o, step)
	if err != nil {
		return Report{Between: mayBeBetween(err)}, err
	}
	defer closeAll()
	r := &restoration{opts: o, log: log, all: all}
	report, err := r.run(ctx)
	if err != nil {
		return Report{Between: r.between()}, err
	}
	return report, nil
}

// settle brings disks out of between, where a restoration that was given up may have left them. It extracts
// nothing: one that had not begun to move is as if it had never been.
func settle(ctx context.Context, o Options, log logr.Logger, step func(string) error) (Report, error) {
	all, closeAll, err := openTargets(o, step)
	if err != nil {
		return Report{Between: mayBeBetween(err)}, err
	}
	defer closeAll()
	r := &restoration{opts: o, log: log, all: all, settles: true}
	report, _, err := r.goOn(context.WithoutCancel(ctx))
	if err != nil {
		return Report{Between: r.between()}, err
	}
	return report, nil
}

// between is whether what was on a disk is aside, and the restoration under way still. One that was given up
// isn't on a disk that says "done": that has all, though something may lie beside it. A disk that can't be read may
// be between.
func (r *restoration) between() bool {
	return slices.ContainsFunc(r.all, func(t *target) bool {
		if r.settles {
			if done, err := t.has(markDone); done || err != nil {
				return err != nil
			}
		}
		before, err := t.stat(t.before)
		if before == nil || err != nil {
			return err != nil
		}
		begun, err := t.stat(t.restore)
		return begun != nil || err != nil
	})
}

func (r *restoration) run(ctx context.Context) (Report, error) {
	// What is begun here is ended, whatever signal comes: these are a few renames and small files.
	if last, ok, err := r.goOn(context.WithoutCancel(ctx)); ok || err != nil {
		return last, err
	}
	begun, err := r.prepare(ctx)
	if err != nil {
		if tidyErr := r.discard(context.WithoutCancel(ctx), r.all); tidyErr != nil {
			r.log.Error(tidyErr, "What was extracted isn't deleted")
		}
		return Report{}, err
	}
	return r.move(context.WithoutCancel(ctx), begun)
}

// goOn does what is left of an earlier try. ok is whether the restoration is done then.
func (r *restoration) goOn(ctx context.Context) (last Report, ok bool, err error) {
	for _, mark := range []string{markDone, markVerified} {
		t, err := firstWith(r.all, mark)
		if err != nil {
			return last, false, err
		}
		if t == nil {
			continue
		}
		begun, err := t.read(mark)
		if err != nil {
			return last, false, t.explain(fmt.Errorf("read what an earlier try did: %w", err))
		}
		written, err := r.written(begun)
		if err != nil {
			return last, false, err
		}
		// One that was killed before it had said on all disks that all is there begins anew.
		if mark == markVerified {
			all, err := everyHas(written, mark)
			if err != nil {
				return last, false, err
			}
			if !all {
				break
			}
		}
		r.log.Info("An earlier try goes on")
		last, err := r.move(ctx, begun)
		return last, true, err
	}
	for _, t := range r.all {
		before, err := t.stat(t.before)
		if err != nil {
			return last, false, t.explain(err)
		}
		if before != nil {
			return last, false, fault.Final("disk %s has a %s already, which no restoration that is under way has made", t.name, t.before)
		}
	}
	return last, false, r.discard(ctx, r.all)
}

// firstWith is the first disk that has a marker; nil: none has.
func firstWith(all []*target, mark string) (*target, error) {
	for _, t := range all {
		if has, err := t.has(mark); has || err != nil {
			return t, t.explain(err)
		}
	}
	return nil, nil //nolint:nilnil // none has
}

// written are the disks that a restoration writes. Where it was given up those that are gone are left out.
func (r *restoration) written(begun record) ([]*target, error) {
	var all []*target
	for _, name := range begun.Written {
		i := slices.IndexFunc(r.all, func(t *target) bool { return t.name == name })
		if r.settles && (i < 0 || r.anew(r.all[i])) {
			continue
		}
		if i < 0 {
			return nil, fault.Final("an earlier try of this restoration wrote disk %s, too, which --disk must name", name)
		}
		all = append(all, r.all[i])
	}
	return all, nil
}

// anew is whether a disk was made anew since the restoration wrote it: nothing of that is on it, while files
// change places on another disk. Before they do, and once that is undone, nothing may be on it, too.
func (r *restoration) anew(t *target) bool {
	for _, name := range []string{t.restore, t.before} {
		if info, err := t.stat(name); info != nil || err != nil {
			return false
		}
	}
	done, err := anyHas(r.all, markDone)
	return done || err != nil || r.between()
}

func (r *restoration) discard(ctx context.Context, targets []*target) error {
	var errs []error
	for _, t := range targets {
		errs = append(errs, t.explain(t.discard(ctx)))
	}
	return errors.Join(errs...)
}

// prepare extracts all, checks it, makes it durable, and says so on each disk.
func (r *restoration) prepare(ctx context.Context) (record, error) {
	from, report, err := r.source(ctx)
	if err != nil {
		return record{}, err
	}
	defer from.close()
	var p progress
	defer p.watch(r.log)()
	e := newExtractor(ctx, r.all, &p)
	err = e.all(from)
	if err == nil {
		if err = from.end(); err != nil {
			err = fmt.Errorf("%w: %w", errArchive, err)
		}
	}
	if err != nil {
		return record{}, r.blame(ctx, from, err)
	}
	report.Files = p.files.Load()
	for _, d := range r.opts.Disks {
		if slices.Contains(e.written, d.Name) {
			report.Disks = append(report.Disks, d.Name)
		}
	}
	r.log.Info("All is extracted", "files", report.Files, "bytes", p.bytes.Load(), "disks", report.Disks)
	begun := record{Report: *report, Written: report.Disks}
	written, err := r.written(begun)
	if err != nil {
		return record{}, err
	}
	for _, t := range written {
		if err := durable.SyncDisk(t.root); err != nil {
			return record{}, t.explain(err)
		}
	}
	for _, t := range written {
		if err := t.mark(markVerified, begun); err != nil {
			return record{}, t.explain(err)
		}
	}
	return begun, nil
}

// blame tells what is wrong with an archive from what went wrong while it was fetched: only the latter
// can be mended by another try.
func (r *restoration) blame(ctx context.Context, from *source, err error) error {
	if fault.Canceled(ctx) != nil {
		return fault.ErrCanceled
	}
	if !errors.Is(err, errArchive) {
		return err
	}
	if broken := from.broken(); broken != nil {
		return broken
	}
	var f fault.FinalError
	if errors.As(err, &f) {
		return f
	}
	return fault.Final("%w", err)
}

func (r *restoration) source(ctx context.Context) (*source, *Report, error) {
	if r.opts.Archive.Dir == "" {
		return unpack(ctx, r.opts, r.log)
	}
	var from []Disk
	for _, d := range r.opts.Disks {
		place := filepath.Join(r.opts.Archive.Dir, d.Name)
		if info, err := os.Stat(place); err == nil && info.IsDir() {
			from = append(from, Disk{d.Name, place})
		}
	}
	if len(from) == 0 {
		return nil, nil, fault.Final("%s has a directory for none of the disks", r.opts.Archive.Dir)
	}
	s, report := copyOf(ctx, from)
	return s, report, nil
}

// dropPrevious deletes what a restoration kept, and what is left of one that was given up.
func dropPrevious(ctx context.Context, o Options, step func(string) error) error {
	all, closeAll, err := openTargets(o, step)
	if err != nil {
		return err
	}
	defer closeAll()
	for _, t := range all {
		done, err := t.has(markDone)
		if err != nil {
			return t.explain(err)
		}
		verified, err := t.has(markVerified)
		if err != nil {
			return t.explain(err)
		}
		if verified && !done {
			return fault.Final("disk %s: the restoration isn't done: run it again", t.name)
		}
	}
	for _, t := range all {
		err := t.removeAll(ctx, t.before)
		if err == nil {
			err = t.discard(ctx)
		}
		if err != nil {
			return t.explain(err)
		}
	}
	return nil
}
