package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

// extractor extracts an archive into the restorations' directories.
type extractor struct {
	ctx      context.Context
	targets  map[string]*target
	progress *progress
	buffer   []byte
	zeros    []byte
	// open is the directory that was written last, with those above it.
	open stack
	// has are the names of the disks that the archive has, at most mostDisks.
	has []string
	// written are those of them that were extracted.
	written []string
}

func newExtractor(ctx context.Context, targets []*target, p *progress) *extractor {
	e := &extractor{ctx: ctx, targets: map[string]*target{}, progress: p, buffer: make([]byte, bufferSize), zeros: make([]byte, bufferSize)}
	for _, t := range targets {
		e.targets[t.name] = t
	}
	return e
}

// errArchive is wrapped around what is wrong with an archive, and not with where it is put.
var errArchive = errors.New("the archive is damaged")

func (e *extractor) all(from io.Reader) error {
	defer e.open.drop()
	archive := tar.NewReader(from)
	for {
		if err := fault.Canceled(e.ctx); err != nil {
			return err
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errArchive, err)
		}
		if err := e.entry(h, archive); err != nil {
			return err
		}
	}
	if err := e.open.leave(0); err != nil {
		return err
	}
	if len(e.written) == 0 {
		return e.noDisk()
	}
	return nil
}

func (e *extractor) noDisk() error {
	if len(e.has) == 0 {
		return fault.Final("the archive is empty: it has no disk")
	}
	return fault.Final("the archive has none of the disks that are restored: it has %s", strings.Join(e.has, ", "))
}

// split is an entry's disk and its path on it.
func split(name string) (disk string, parts []string, err error) {
	if strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return "", nil, fault.Final("the archive has an entry %q, whose name must be a relative path", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "..":
			return "", nil, fault.Final("the archive has an entry %q, which leads out of its disk", name)
		case "", ".":
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return "", nil, nil
	}
	return parts[0], parts[1:], nil
}

func (e *extractor) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	disk, parts, err := split(h.Name)
	if err != nil || disk == "" {
		return err
	}
	if !slices.Contains(e.has, disk) && len(e.has) < mostDisks {
		e.has = append(e.has, disk)
	}
	t := e.targets[disk]
	if t == nil || len(parts) > 0 && stays(parts[0]) {
		return nil
	}
	if len(parts) > maxDepth+1 {
		return fault.Final("the archive has an entry more than %d directories deep", maxDepth)
	}
	if err := e.begin(t); err != nil {
		return t.explain(err)
	}
	if len(parts) == 0 {
		if h.Typeflag != tar.TypeDir {
			return fault.Final("the archive has %q as something else than a directory", h.Name)
		}
		// The disk's own mode and owner are the cluster's.
		return nil
	}
	if err := e.put(t, h, parts, content); err != nil {
		return t.explain(err)
	}
	e.progress.files.Add(1)
	return nil
}

// begin makes the directory for a disk's files.
func (e *extractor) begin(t *target) error {
	if e.open.of == t {
		return nil
	}
	if err := e.open.leave(0); err != nil {
		return err
	}
	if !slices.Contains(e.written, t.name) {
		e.written = append(e.written, t.name)
		for _, dir := range []string{t.restore, t.files()} {
			if err := t.change("mkdir " + dir); err != nil {
				return err
			}
			if err := t.root.Mkdir(dir, 0o700); err != nil {
				return err //nolint:wrapcheck // explain does
			}
		}
	}
	root, err := t.root.OpenRoot(t.files())
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	e.open = stack{of: t, levels: []level{{root: root}}}
	return nil
}

// put writes one entry.
func (e *extractor) put(t *target, h *tar.Header, parts []string, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		if err := e.open.goTo(parts); err != nil {
			return err
		}
		e.open.top().header = h
		return nil
	}
	if err := e.open.goTo(parts[:len(parts)-1]); err != nil {
		return err
	}
	dir, base := e.open.top().root, parts[len(parts)-1]
	if err := t.change("write " + h.Name); err != nil {
		return err
	}
	var err error
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		err = e.file(dir, base, h, content)
	case tar.TypeSymlink:
		err = link(dir, base, h)
	case tar.TypeLink:
		err = e.hardLink(t, h, parts)
	default:
		return fault.Final("the archive has %q, which is neither a file, a directory nor a link", h.Name)
	}
	if errors.Is(err, fs.ErrExist) {
		return fault.Final("the archive has %q twice", h.Name)
	}
	return err
}

func link(dir *os.Root, base string, h *tar.Header) error {
	if err := dir.Symlink(h.Linkname, base); err != nil {
		return err //nolint:wrapcheck // explain does
	}
	if err := dir.Lchown(base, h.Uid, h.Gid); err != nil && !isIgnored(err) {
		return err //nolint:wrapcheck // explain does
	}
	f, err := dir.Open(".")
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	defer f.Close()
	at, err := unix.TimeToTimespec(h.ModTime)
	if err != nil {
		return nil // a time that the system can't have
	}
	err = unix.UtimesNanoAt(int(f.Fd()), base, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	if isIgnored(err) {
		return nil
	}
	return err //nolint:wrapcheck // explain does
}

func (e *extractor) file(dir *os.Root, base string, h *tar.Header, content io.Reader) error {
	f, err := dir.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	err = e.fill(f, h.Size, content)
	if err == nil {
		// Bits that give a file its owner's rights aren't set: nothing that a game keeps needs them.
		err = dress(f, h, h.FileInfo().Mode().Perm())
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return dir.Chtimes(base, time.Time{}, h.ModTime) //nolint:wrapcheck // explain does
}

// dress sets the owner, where the process may, and the mode. *os.File has both.
func dress(f interface {
	Chown(uid, gid int) error
	Chmod(mode fs.FileMode) error
}, h *tar.Header, mode fs.FileMode,
) error {
	if err := f.Chown(h.Uid, h.Gid); err != nil && !isIgnored(err) {
		return err //nolint:wrapcheck // explain does
	}
	return f.Chmod(mode) //nolint:wrapcheck // explain does
}

// fill writes a file. Blocks of zeros become holes.
func (e *extractor) fill(f *os.File, size int64, content io.Reader) error {
	for left := size; left > 0; {
		if err := fault.Canceled(e.ctx); err != nil {
			return err
		}
		part := e.buffer[:min(left, bufferSize)]
		if _, err := io.ReadFull(content, part); err != nil {
			return fmt.Errorf("%w: %w", errArchive, err)
		}
		var err error
		if bytes.Equal(part, e.zeros[:len(part)]) {
			_, err = f.Seek(int64(len(part)), io.SeekCurrent)
		} else {
			_, err = f.Write(part)
		}
		if err != nil {
			return err //nolint:wrapcheck // explain does
		}
		left -= int64(len(part))
		e.progress.bytes.Add(int64(len(part)))
	}
	return f.Truncate(size) //nolint:wrapcheck // explain does
}

// stack has the directories down to the one that is written, each opened in the one above: no link is
// followed.
type stack struct {
	of     *target
	levels []level
}

type level struct {
	name string
	root *os.Root
	// header is what the archive says of the directory, which is set once all is in it.
	header *tar.Header
	made   bool
}

func (s *stack) top() *level { return &s.levels[len(s.levels)-1] }

// goTo goes to a directory, and makes those that aren't there.
func (s *stack) goTo(parts []string) error {
	same := 0
	for same < len(parts) && same+1 < len(s.levels) && s.levels[same+1].name == parts[same] {
		same++
	}
	if err := s.leave(same + 1); err != nil {
		return err
	}
	for _, part := range parts[same:] {
		if err := s.push(part, path.Join(parts...)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stack) push(name, where string) error {
	dir := s.top().root
	made := false
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.of.change("mkdir " + where); err != nil {
			return err
		}
		if err := dir.Mkdir(name, 0o700); err != nil {
			return err //nolint:wrapcheck // explain does
		}
		made = true
		info, err = dir.Lstat(name)
	}
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	if !info.IsDir() {
		return fault.Final("the archive has %q twice, as a directory and as something else: nothing is written through a link", where)
	}
	root, err := openDir(dir, name, info)
	if err != nil {
		return err
	}
	s.levels = append(s.levels, level{name: name, root: root, made: made})
	return nil
}

// leave goes up until so many levels are left, and finishes the directories.
func (s *stack) leave(levels int) error {
	for len(s.levels) > levels {
		if err := s.finish(s.top()); err != nil {
			return err
		}
		s.pop()
	}
	if levels == 0 {
		s.of = nil
	}
	return nil
}

func (s *stack) pop() {
	_ = s.top().root.Close()
	s.levels = s.levels[:len(s.levels)-1]
}

// drop closes all.
func (s *stack) drop() {
	for len(s.levels) > 0 {
		s.pop()
	}
}

// finish sets what is to be set of a directory.
func (s *stack) finish(l *level) error {
	if l.header == nil && !l.made {
		return nil
	}
	if err := s.of.change("finish " + l.name); err != nil {
		return err
	}
	if l.header == nil {
		return l.root.Chmod(".", 0o755) //nolint:wrapcheck // explain does
	}
	mode := l.header.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetgid | fs.ModeSticky)
	if err := l.root.Chtimes(".", time.Time{}, l.header.ModTime); err != nil {
		return err //nolint:wrapcheck // explain does
	}
	f, err := l.root.Open(".")
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	defer f.Close()
	return dress(f, l.header, mode)
}
