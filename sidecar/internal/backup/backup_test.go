package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
	"dormouse.dev/dormouse/sidecar/internal/backup/store"
)

func (p place) run(ctx context.Context, t *testing.T, o Options) (Report, error) {
	t.Helper()
	err := Run(ctx, logs(t), o)
	text, readErr := os.ReadFile(o.Report)
	check(t, readErr)
	var r Report
	check(t, json.Unmarshal(text, &r))
	if (err == nil) != (r.Error == "") {
		t.Errorf("error %v, and the report says %q", err, r.Error)
	}
	return r, err
}

func TestDisksComeBackAsTheyWere(t *testing.T) {
	p := newPlace(t)
	allKinds(t, p.world)
	write(t, p.mods+"/mod.jar", "a mod")
	wantWorld, wantMods := tree(t, p.world), tree(t, p.mods)
	leftOut(t, p.world)
	made, err := p.run(t.Context(), t, p.options(commandBackup))
	check(t, err)
	content, err := os.ReadFile(p.archive())
	check(t, err)
	sum := sha256.Sum256(content)
	want := Report{Bytes: int64(len(content)), Files: int64(len(wantWorld) + len(wantMods)), SHA256: hex.EncodeToString(sum[:]), Disks: []string{"world", "mods"}}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("report of the backup (-want +got):\n%s", diff)
	}
	// Another server's disks, and this one's own, which have other things by now.
	q := newPlace(t)
	write(t, q.world+"/level.dat", "another world")
	write(t, q.world+"/lost+found/2", "found")
	before := tree(t, q.world)
	o := q.options(commandRestore)
	o.Archive.File, o.SHA256 = p.archive(), made.SHA256
	restored, err := p.run(t.Context(), t, o)
	check(t, err)
	if diff := cmp.Diff(want, restored); diff != "" {
		t.Errorf("report of the restoration (-want +got):\n%s", diff)
	}
	same(t, "the world", wantWorld, visible(tree(t, q.world)))
	same(t, "the mods", wantMods, visible(tree(t, q.mods)))
	same(t, "what was there", visible(before), tree(t, q.world+"/.dormouse-before-r1"))
	if _, err := os.Stat(q.world + "/lost+found/2"); err != nil {
		t.Errorf("lost+found moved: %v", err)
	}
	// A restoration whose report was lost is run again.
	again, err := p.run(t.Context(), t, o)
	if diff := cmp.Diff(want, again); diff != "" || err != nil {
		t.Errorf("report of the second restoration (-want +got):\n%s, %v", diff, err)
	}
	same(t, "the world after it", wantWorld, visible(tree(t, q.world)))
	for range 2 {
		_, err = p.run(t.Context(), t, q.options(commandDrop))
		check(t, err)
	}
	for name := range tree(t, q.world) {
		if strings.HasPrefix(name, ".dormouse") {
			t.Errorf("%s is left", name)
		}
	}
	for range 2 {
		_, err = p.run(t.Context(), t, p.options(commandForget))
		check(t, err)
	}
	if left, err := os.ReadDir(p.archives); err != nil || len(left) != 1 {
		t.Errorf("left of the archives: %v, %v; want the report", left, err)
	}
}

// visible is a tree without what stays at the top.
func visible(all map[string]string) map[string]string {
	for name := range all {
		if top, _, _ := strings.Cut(name, "/"); stays(top) {
			delete(all, name)
		}
	}
	return all
}

func TestDisksAreCopiedFromADirectory(t *testing.T) {
	p, q := newPlace(t), newPlace(t)
	allKinds(t, p.world)
	want := tree(t, p.world)
	leftOut(t, p.world)
	write(t, q.mods+"/stays", "as it is")
	o := q.options(commandRestore)
	o.Archive = store.Location{Dir: filepath.Dir(p.world)}
	check(t, os.Remove(p.mods))
	r, err := p.run(t.Context(), t, o)
	check(t, err)
	if r.Files != int64(len(want)) || !slices.Equal(r.Disks, []string{"world"}) || r.Changed {
		t.Errorf("report %+v, want %d files of the world", r, len(want))
	}
	same(t, "the world", want, visible(tree(t, q.world)))
	if _, err := os.Stat(q.mods + "/stays"); err != nil {
		t.Error(err)
	}
	o.Archive.Dir, o.ID = p.world, "r2"
	if _, err := p.run(t.Context(), t, o); exitCode(err) != codeFinal {
		t.Errorf("from a directory without the disks: %v", err)
	}
}

func TestManySmallFiles(t *testing.T) {
	p, q := newPlace(t), newPlace(t)
	for i := range 10_000 {
		dir := fmt.Sprintf("%s/%d", p.world, i%100)
		check(t, os.MkdirAll(dir, 0o755))
		check(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), fmt.Appendf(nil, "file %d", i), 0o600))
	}
	made, err := p.run(t.Context(), t, p.options(commandBackup))
	check(t, err)
	if made.Files != 10_100 || made.Changed {
		t.Errorf("report %+v, want 10100 files", made)
	}
	o := q.options(commandRestore)
	o.Archive.File = p.archive()
	_, err = p.run(t.Context(), t, o)
	check(t, err)
	same(t, "the world", tree(t, p.world), visible(tree(t, q.world)))
}

// contents are an archive's files.
func contents(t *testing.T, archive string) map[string]string {
	t.Helper()
	f, err := os.Open(archive)
	check(t, err)
	defer f.Close()
	plain, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1))
	check(t, err)
	defer plain.Close()
	all := map[string]string{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		check(t, err)
		content, err := io.ReadAll(r)
		check(t, err)
		all[h.Name] = string(content)
	}
}

// changing is a sink during whose first large write something happens: a file of the disk is being read
// then.
type changing struct {
	io.Writer
	change func()
}

func (c *changing) Write(p []byte) (int, error) {
	if c.change != nil && len(p) > 1000 {
		c.change()
		c.change = nil
	}
	return c.Writer.Write(p)
}

func TestAFileThatChangesMeanwhileIsSaidToAndLeavesAWholeArchive(t *testing.T) {
	const size = 8 << 20
	for name, c := range map[string]struct {
		change func(file string) error
		want   func(content []byte) bool
	}{
		"it shrinks": {func(file string) error { return os.Truncate(file, 1<<20) }, func(b []byte) bool {
			return b[size-1] == 0
		}},
		"it grows": {func(file string) error { return os.Truncate(file, 2*size) }, func(b []byte) bool { return b[size-1] == 'x' }},
		"it is written": {func(file string) error {
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("y"), 0)
			return err
		}, func([]byte) bool { return true }},
		"one is added": {func(file string) error { return os.WriteFile(file+".too", nil, 0o600) }, func([]byte) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			write(t, p.world+"/big", strings.Repeat("x", size))
			write(t, p.world+"/later", "whole")
			out, err := os.Create(p.archives + "/a")
			check(t, err)
			defer out.Close()
			w := newWalker(t.Context(), &changing{out, func() { check(t, c.change(p.world+"/big")) }}, &progress{})
			check(t, w.all(p.options(commandBackup).Disks))
			if !w.changed {
				t.Error("it isn't said that something changed")
			}
			_, err = out.Seek(0, io.SeekStart)
			check(t, err)
			archive := tar.NewReader(out)
			for _, want := range []string{"world/", "world/big", "world/later", "mods/"} {
				h, err := archive.Next()
				check(t, err)
				content, err := io.ReadAll(archive)
				check(t, err)
				if h.Name != want || want == "world/big" && (len(content) != size || !c.want(content)) {
					t.Errorf("entry %s with %d bytes, want %s", h.Name, len(content), want)
				}
			}
		})
	}
}

func TestALinkThatTakesADirectorysPlaceLeadsNowhere(t *testing.T) {
	p := newPlace(t)
	outside := t.TempDir()
	write(t, outside+"/secret", "outside")
	for i := range 20 {
		write(t, fmt.Sprintf("%s/swapped/%d", p.world, i), "inside")
	}
	write(t, p.world+"/swapped/deep/secret", "inside")
	end, ended := make(chan struct{}), make(chan struct{})
	check(t, os.Symlink(outside, p.world+"/link"))
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				// Both names are there at any time: one is the directory, and the other one the link.
				_ = unix.Renameat2(unix.AT_FDCWD, p.world+"/link", unix.AT_FDCWD, p.world+"/swapped", unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() {
		close(end)
		<-ended
	}()
	changed, copied := false, 0
	for range 100 {
		made, err := p.run(t.Context(), t, p.options(commandBackup))
		// The swaps and the looks can take turns, so that each look comes too late: it is what the backup says then.
		if errors.Is(err, errReplaced) {
			continue
		}
		check(t, err)
		copied++
		changed = changed || made.Changed
		for name, content := range contents(t, p.archive()) {
			if content == "outside" {
				t.Fatalf("%s is from outside", name)
			}
		}
	}
	if copied == 0 || !changed {
		t.Errorf("%d of 100 backups were made, and a swap was noticed: %t", copied, changed)
	}
}

func TestACanceledBackupLeavesNothing(t *testing.T) {
	p := newPlace(t)
	noise(t, p.world+"/big", 4<<20)
	ctx, cancel := context.WithCancel(t.Context())
	at, err := store.Open(store.Location{File: p.archive()}, store.S3{}, logs(t))
	check(t, err)
	defer at.Close()
	to, err := at.Create(ctx)
	check(t, err)
	if left, err := os.ReadDir(filepath.Dir(p.archive())); err != nil || len(left) != 1 {
		t.Fatalf("while it is written there are %v, %v", left, err)
	}
	_, err = pack(ctx, p.options(commandBackup).Disks, &changing{to, cancel}, logs(t))
	if err == nil {
		err = fault.Canceled(ctx)
	}
	if !errors.Is(err, fault.ErrCanceled) {
		t.Errorf("error %v", err)
	}
	to.Abort(err)
	r, err := p.run(ctx, t, p.options(commandBackup))
	if exitCode(err) != codeFailed || r.Error != fault.ErrCanceled.Error() {
		t.Errorf("canceled before it began: %v, report %+v", err, r)
	}
	if left, err := os.ReadDir(p.archives); err != nil || len(left) != 1 {
		t.Errorf("left of the archives: %v, %v; want the report", left, err)
	}
}

func TestWhatAnEarlierTryLeftIsReplaced(t *testing.T) {
	p := newPlace(t)
	write(t, p.world+"/level.dat", "new")
	write(t, p.archives+"/survival/.one.tar.zst.partial", "half")
	write(t, p.archive(), "an old one")
	_, err := p.run(t.Context(), t, p.options(commandBackup))
	check(t, err)
	if got := contents(t, p.archive())["world/level.dat"]; got != "new" {
		t.Errorf("the archive has %q", got)
	}
	if left, err := os.ReadDir(p.archives + "/survival"); err != nil || len(left) != 1 {
		t.Errorf("left beside the archive: %v, %v", left, err)
	}
}

// small mounts a file system of a MiB, where the test may.
func small(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	t.Cleanup(func() { check(t, syscall.Unmount(dir, 0)) })
}

// noise is content that can't be compressed.
func noise(t *testing.T, file string, size int) {
	t.Helper()
	in, err := os.Open("/dev/urandom")
	check(t, err)
	defer in.Close()
	out, err := os.Create(file)
	check(t, err)
	_, err = io.CopyN(out, in, int64(size))
	check(t, errors.Join(err, out.Close()))
}

func TestAFullDiskOfArchivesIsSaidAndLeftAsItWas(t *testing.T) {
	p := newPlace(t)
	small(t, p.archives)
	noise(t, p.world+"/big", 4<<20)
	o := p.options(commandBackup)
	o.Report = t.TempDir() + "/report"
	r, err := p.run(t.Context(), t, o)
	if exitCode(err) != codeFailed || !strings.Contains(r.Error, "the disk of the archives is full") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(p.archives); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestAFullDiskIsSaidAndLeftAsItWas(t *testing.T) {
	p, q := newPlace(t), newPlace(t)
	noise(t, p.world+"/big", 4<<20)
	_, err := p.run(t.Context(), t, p.options(commandBackup))
	check(t, err)
	small(t, q.world)
	write(t, q.world+"/level.dat", "old")
	want := tree(t, q.world)
	o := q.options(commandRestore)
	o.Archive.File = p.archive()
	r, err := p.run(t.Context(), t, o)
	if exitCode(err) != codeFailed || !strings.Contains(r.Error, "disk world is full") {
		t.Errorf("error %v", err)
	}
	same(t, "the disk", want, tree(t, q.world))
}

func TestAFileThatCannotBeReadFailsTheBackup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root becomes another user")
	}
	p := newPlace(t)
	write(t, p.world+"/secret", "root's")
	check(t, os.Chmod(p.world+"/secret", 0o600))
	check(t, os.Chmod(p.archives, 0o777))
	code, text := asNobody(t, p, commandBackup, 0, 0)
	if code == 0 || !strings.Contains(text, "world/secret") {
		t.Errorf("code %d: %s", code, text)
	}
	if _, err := os.Stat(p.archive()); err == nil {
		t.Error("there is an archive")
	}
}

// BenchmarkBackup copies files that compress about as well as worlds do. Beside it, what tar and zstd
// take for the same, if they are there.
func BenchmarkBackup(b *testing.B) {
	p := newPlace(b)
	const size, count = 4 << 20, 64
	for i := range count {
		half := make([]byte, size/2)
		in, err := os.Open("/dev/urandom")
		check(b, err)
		_, err = io.ReadFull(in, half)
		check(b, err)
		in.Close()
		write(b, fmt.Sprintf("%s/region/%d.mca", p.world, i), string(half)+strings.Repeat("chunk", size/10))
	}
	b.Run("sidecar", func(b *testing.B) {
		b.SetBytes(size * count)
		for b.Loop() {
			_, err := backup(b.Context(), p.options(commandBackup), logr.Discard())
			check(b, err)
		}
	})
	b.Run("tar", func(b *testing.B) {
		for _, program := range []string{"tar", "zstd"} {
			if _, err := exec.LookPath(program); err != nil {
				b.Skip(err)
			}
		}
		b.SetBytes(size * count)
		for b.Loop() {
			check(b, exec.CommandContext(b.Context(), "sh", "-c", `tar -C "$0" -c . | zstd -q -3 -f -o "$1"`, p.world, p.archives+"/tar.zst").Run())
		}
	})
}
