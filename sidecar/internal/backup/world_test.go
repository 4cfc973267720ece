package backup

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/sidecar/internal/backup/store"
)

// inChild names what the test's program does instead, as a process of its own.
const inChild = "BACKUP_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(inChild) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func logs(t *testing.T) logr.Logger { return testr.New(t) }

// when is a time with nanoseconds, which tar alone doesn't keep.
var when = time.Date(2024, 2, 29, 12, 34, 56, 123456789, time.UTC)

func write(t testing.TB, file, content string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(file), 0o755))
	check(t, os.WriteFile(file, []byte(content), 0o644))
	check(t, os.Chtimes(file, when, when))
}

// tree is what is below a directory: of each entry the kind, mode, time, owner, and content or target, and of
// each further name of a file that it is one.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all, first := map[string]string{}, map[uint64]string{}
	check(t, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := os.Lstat(name)
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%s %s %d:%d", info.Mode(), info.ModTime().UTC().Format(time.RFC3339Nano), stat.Uid, stat.Gid)
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if len(content) > 100 {
				content = fmt.Appendf(nil, "%d bytes %x", len(content), content[:16])
			}
			text += " " + string(content)
			if stat.Nlink > 1 && first[stat.Ino] != "" {
				text += " = " + first[stat.Ino]
			}
			first[stat.Ino] = strings.TrimPrefix(name, dir+"/")
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text += " -> " + target
		}
		all[strings.TrimPrefix(name, dir+"/")] = text
		return nil
	}))
	return all
}

func same(t testing.TB, what string, want, got map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// allKinds makes a disk with all that a disk may have.
func allKinds(t testing.TB, dir string) {
	t.Helper()
	long := strings.Repeat("long", 60)
	write(t, dir+"/level.dat", "the world")
	write(t, dir+"/empty", "")
	write(t, dir+"/region/"+long+"/"+long+"/r.0.0.mca", strings.Repeat("chunk", 200_000))
	write(t, dir+"/holes", "begin"+strings.Repeat("\x00", 3*bufferSize)+"end")
	write(t, dir+"/a name\nwith \xff and ü", "odd")
	write(t, dir+"/run.sh", "#!/bin/sh")
	check(t, os.Chmod(dir+"/run.sh", 0o751))
	check(t, os.Mkdir(dir+"/nothing", 0o755))
	check(t, os.Chmod(dir+"/nothing", 0o775|fs.ModeSetgid))
	write(t, dir+"/snapshots/old/level.dat", "the world as it was")
	for name, file := range map[string]string{
		"level.dat.too": "level.dat", "snapshots/1/level.dat": "level.dat", "snapshots/2": "snapshots/old/level.dat", "zodd": "a name\nwith \xff and ü",
	} {
		check(t, os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755))
		check(t, os.Link(dir+"/"+file, dir+"/"+name))
	}
	for link, target := range map[string]string{"relative": "level.dat", "dangling": "nowhere", "outside": "/etc/passwd", "region/up": "../.."} {
		check(t, os.Symlink(target, dir+"/"+link))
		at, err := unix.TimeToTimespec(when)
		check(t, err)
		check(t, unix.UtimesNanoAt(unix.AT_FDCWD, dir+"/"+link, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
	}
	write(t, dir+"/sealed/file", "read only")
	for _, d := range []string{"region", "nothing", "sealed", "snapshots", "snapshots/1", "snapshots/old"} {
		check(t, os.Chtimes(dir+"/"+d, when, when))
	}
	check(t, os.Chmod(dir+"/sealed", 0o555))
}

// leftOut adds what a backup doesn't have.
func leftOut(t testing.TB, dir string) {
	t.Helper()
	check(t, syscall.Mkfifo(dir+"/pipe", 0o600))
	write(t, dir+"/lost+found/1", "lost")
	write(t, dir+"/.dormouse-before-x/1", "before")
	write(t, dir+"/.dormouse-restore-y/1", "restore")
}

// place is where a test's archives and disks are.
type place struct{ archives, world, mods string }

func newPlace(t testing.TB) place {
	t.Helper()
	dir := t.TempDir()
	p := place{dir + "/backups", dir + "/world", dir + "/mods"}
	for _, d := range []string{p.archives, p.world, p.mods} {
		check(t, os.Mkdir(d, 0o755))
	}
	t.Cleanup(func() { _ = os.Chmod(p.world+"/sealed", 0o755) })
	return p
}

func (p place) archive() string { return p.archives + "/survival/one.tar.zst" }

func (p place) options(command string) Options {
	return Options{
		Command: command, Disks: []Disk{{"world", p.world}, {"mods", p.mods}}, ID: "r1",
		Archive: store.Location{File: p.archive()}, Report: p.archives + "/report",
	}
}

// entry is one of an archive that is made by hand.
type entry struct {
	tar.Header
	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}, content}
}

func linkTo(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}, ""}
}

func hardLinkTo(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}, ""}
}

func special(name string, kind byte) entry {
	return entry{tar.Header{Name: name, Typeflag: kind, Mode: 0o755}, ""}
}

func packed(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed, err := zstd.NewWriter(&out)
	check(t, err)
	archive := tar.NewWriter(compressed)
	for _, e := range entries {
		check(t, archive.WriteHeader(&e.Header))
		_, err := archive.Write([]byte(e.content))
		check(t, err)
	}
	check(t, archive.Close())
	check(t, compressed.Close())
	return out.Bytes()
}
