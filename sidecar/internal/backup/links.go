package backup

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

// mostLinked is how many files of a disk are remembered whose other names haven't come yet. Each further one is
// copied once for each of its names.
const mostLinked = 50_000

// linked are the files of a disk that have several names, of which the first is written.
type linked map[fileID]*linkedFile

type fileID struct{ device, inode uint64 }

// linkedFile is the first name in the archive, and how many are still to come if all are on the disk.
type linkedFile struct {
	name string
	// size and time are what was copied. A file that has others was written to since then, or is another one
	// that has the number of one that was deleted.
	size int64
	time time.Time
	left uint64
}

// earlier is the name in the archive of the same file; empty if there is none, and then this one is remembered.
func (l linked) earlier(info fs.FileInfo, name string) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink < 2 {
		return ""
	}
	id := fileID{stat.Dev, stat.Ino}
	first := l[id]
	if first == nil || first.size != info.Size() || !first.time.Equal(info.ModTime()) {
		if first != nil || len(l) < mostLinked {
			l[id] = &linkedFile{name: name, size: info.Size(), time: info.ModTime(), left: stat.Nlink - 1}
		}
		return ""
	}
	if first.left--; first.left == 0 {
		delete(l, id)
	}
	return first.name
}

// hardLink writes another name of a file that was extracted before. Where the disk can't have it, it is a copy.
func (e *extractor) hardLink(t *target, h *tar.Header, parts []string) error {
	disk, from, err := split(h.Linkname)
	if err != nil {
		return err
	}
	files := e.open.levels[0].root
	was, err := files.Lstat(path.Join(from...))
	if disk != t.name || len(from) == 0 || err != nil || !was.Mode().IsRegular() {
		return fault.Final("the archive has %q as another name of %q, which is no file of the same disk before it", h.Name, h.Linkname)
	}
	err = files.Link(path.Join(from...), path.Join(parts...))
	if !isIgnored(err) && !errors.Is(err, syscall.EMLINK) {
		return err //nolint:wrapcheck // explain does
	}
	f, err := files.Open(path.Join(from...))
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	defer f.Close()
	if opened, err := f.Stat(); err != nil || !os.SameFile(was, opened) {
		return errors.Join(err, fmt.Errorf("open %s: %w", h.Linkname, errReplaced))
	}
	copied, err := tar.FileInfoHeader(was, "")
	if err != nil {
		return err //nolint:wrapcheck // explain does
	}
	return e.file(e.open.top().root, parts[len(parts)-1], copied, f)
}
