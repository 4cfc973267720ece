package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

// Bounds of what is copied.
const (
	// maxDepth bounds how deep directories are in each other: each is open while what is in it is copied.
	maxDepth = 512
	// mostLooks is how often an entry is looked at anew that another takes the place of.
	mostLooks = 20
	// bufferSize is what is read at once.
	bufferSize = 256 << 10
)

// The names at a disk's top that are no part of a game's files.
const (
	beforePrefix  = ".dormouse-before-"
	restorePrefix = ".dormouse-restore-"
	lostFound     = "lost+found"
)

// stays reports whether an entry at a disk's top is neither copied nor moved.
func stays(name string) bool {
	return name == lostFound || strings.HasPrefix(name, beforePrefix) || strings.HasPrefix(name, restorePrefix)
}

// walker writes disks to a tar archive.
type walker struct {
	ctx      context.Context
	to       *tar.Writer
	progress *progress
	buffer   []byte
	// linked are the files with several names of the disk that is written.
	linked linked
	// changed is set where something wrote to what was read.
	changed bool
	// skipped counts what is neither a file, a directory nor a link.
	skipped int64
}

func newWalker(ctx context.Context, to io.Writer, p *progress) *walker {
	return &walker{ctx: ctx, to: tar.NewWriter(to), progress: p, buffer: make([]byte, bufferSize)}
}

// disk writes one disk.
func (w *walker) disk(d Disk) error {
	root, err := os.OpenRoot(d.Path)
	if err != nil {
		return fmt.Errorf("open disk %s: %w", d.Name, err)
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return fmt.Errorf("open disk %s: %w", d.Name, err)
	}
	if err := w.header(info, d.Name+"/", ""); err != nil {
		return err
	}
	w.linked = linked{}
	// The disk itself isn't counted.
	w.progress.files.Add(-1)
	return w.children(root, info, d.Name, 0)
}

// children writes what is in a directory, whose path in the archive is name.
func (w *walker) children(dir *os.Root, before fs.FileInfo, name string, depth int) error {
	if depth > maxDepth {
		return fault.Final("copy %s: directories are more than %d deep in each other", name, maxDepth)
	}
	children, err := list(dir)
	if err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	for _, child := range children {
		if depth == 0 && stays(child) {
			continue
		}
		if err := w.entry(dir, child, name+"/"+child, depth); err != nil {
			return err
		}
	}
	after, err := dir.Stat(".")
	if err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	w.changed = w.changed || !after.ModTime().Equal(before.ModTime())
	return nil
}

// list is what is in a directory, in the order of the names, each once. It is the one part of a copy
// that takes more memory for more files: a directory's names, while what is in it is copied.
func list(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err //nolint:wrapcheck // callers do
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return slices.Compact(names), err //nolint:wrapcheck // callers do
}

// entry writes what has a name in a directory. Where something else takes its place meanwhile it is
// looked at anew.
func (w *walker) entry(dir *os.Root, base, name string, depth int) error {
	for range mostLooks {
		if err := fault.Canceled(w.ctx); err != nil {
			return err
		}
		info, err := dir.Lstat(base)
		if errors.Is(err, fs.ErrNotExist) {
			w.changed = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		done, err := w.kind(dir, base, name, info, depth)
		if done {
			return err
		}
		// If it is still the same, what went wrong isn't that it was replaced.
		if again, statErr := dir.Lstat(base); err != nil && statErr == nil && os.SameFile(info, again) && isDenied(err) {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		w.changed = true
	}
	return fmt.Errorf("copy %s: %w each of %d times", name, errReplaced, mostLooks)
}

// isDenied reports whether a file that is there can't be read.
func isDenied(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && errno != syscall.ENOENT && errno != syscall.ENOTDIR && errno != syscall.ELOOP && errno != syscall.EINVAL
}

// kind writes an entry. done is false if it couldn't be opened as what it was: err may say why.
func (w *walker) kind(dir *os.Root, base, name string, info fs.FileInfo, depth int) (done bool, err error) {
	switch {
	case info.IsDir():
		sub, err := openDir(dir, base, info)
		if err != nil {
			return false, err
		}
		defer sub.Close()
		if err := w.header(info, name+"/", ""); err != nil {
			return true, err
		}
		return true, w.children(sub, info, name, depth+1)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := dir.Readlink(base)
		if err != nil {
			return false, err //nolint:wrapcheck // entry does
		}
		return true, w.header(info, name, target)
	case info.Mode().IsRegular():
		// Without O_NONBLOCK a FIFO that takes its place would be waited for.
		f, err := dir.OpenFile(base, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return false, err //nolint:wrapcheck // entry does
		}
		defer f.Close()
		opened, err := f.Stat()
		if err != nil || !os.SameFile(info, opened) {
			return false, err //nolint:wrapcheck // entry does
		}
		if first := w.linked.earlier(opened, name); first != "" {
			return true, w.another(opened, name, first)
		}
		return true, w.file(f, opened, name)
	}
	w.skipped++
	return true, nil
}

var errReplaced = errors.New("something else took its place")

// openDir opens a directory, if it is the one that was looked at: os.Root follows a link inside.
func openDir(dir *os.Root, base string, info fs.FileInfo) (*os.Root, error) {
	sub, err := dir.OpenRoot(base)
	if err != nil {
		return nil, err //nolint:wrapcheck // callers do
	}
	opened, err := sub.Stat(".")
	if err == nil && !os.SameFile(info, opened) {
		err = errReplaced
	}
	if err != nil {
		_ = sub.Close()
		return nil, err
	}
	return sub, nil
}

// header begins an entry, of which link is where a symbolic link leads to.
func (w *walker) header(info fs.FileInfo, name, link string) error {
	h := headerOf(info, name)
	switch {
	case info.IsDir():
		h.Typeflag = tar.TypeDir
	case link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, link
	default:
		h.Size = info.Size()
	}
	return w.begin(h)
}

// another writes another name of a file that is in the archive by its first one.
func (w *walker) another(info fs.FileInfo, name, first string) error {
	h := headerOf(info, name)
	h.Typeflag, h.Linkname = tar.TypeLink, first
	return w.begin(h)
}

// headerOf is what all entries have. It has numbers for owners: names are those of another machine's users.
func headerOf(info fs.FileInfo, name string) *tar.Header {
	h := &tar.Header{
		Format: tar.FormatPAX, Name: name, ModTime: info.ModTime(), Mode: int64(info.Mode().Perm()), Typeflag: tar.TypeReg,
	}
	for bit, is := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if info.Mode()&is != 0 {
			h.Mode |= bit
		}
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		h.Uid, h.Gid = int(stat.Uid), int(stat.Gid)
	}
	return h
}

func (w *walker) begin(h *tar.Header) error {
	if err := w.to.WriteHeader(h); err != nil {
		return fmt.Errorf("copy %s: %w", h.Name, err)
	}
	w.progress.files.Add(1)
	return nil
}

// file writes a file. What the header says of its size holds, also when the file has another size by
// then: it is cut, or filled up with zeros.
func (w *walker) file(f *os.File, info fs.FileInfo, name string) error {
	if err := w.header(info, name, ""); err != nil {
		return err
	}
	left := info.Size()
	for left > 0 {
		if err := fault.Canceled(w.ctx); err != nil {
			return err
		}
		part := w.buffer[:min(left, bufferSize)]
		n, err := io.ReadFull(f, part)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		if n < len(part) {
			w.changed = true
			clear(part[n:])
		}
		if _, err := w.to.Write(part); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
		left -= int64(len(part))
		w.progress.bytes.Add(int64(len(part)))
	}
	after, err := f.Stat()
	if err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	w.changed = w.changed || after.Size() != info.Size() || !after.ModTime().Equal(info.ModTime())
	return nil
}
