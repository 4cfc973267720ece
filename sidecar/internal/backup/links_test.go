package backup

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file with many names costs an archive one copy of it, or a game could make one as large as it likes.
func TestAFileWithManyNamesIsCopiedOnce(t *testing.T) {
	p := newPlace(t)
	write(t, p.world+"/file", strings.Repeat("chunk", 100_000))
	for i := range 50 {
		check(t, os.Link(p.world+"/file", fmt.Sprintf("%s/name%d", p.world, i)))
	}
	// What has the first name on the other disk is no name of it.
	write(t, p.mods+"/file", "a mod")
	var progress progress
	w := newWalker(t.Context(), new(strings.Builder), &progress)
	check(t, w.all(p.options(commandBackup).Disks))
	if files, size := progress.files.Load(), progress.bytes.Load(); files != 52 || size != 500_005 {
		t.Errorf("%d files and %d bytes are copied, want 52 and 500005", files, size)
	}
	if len(w.linked) != 0 {
		t.Errorf("%d files are remembered whose names are all written", len(w.linked))
	}
}

// The file with another name may have been written to meanwhile, or be another one with the same number.
func TestAFileThatChangedIsNoOtherName(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "one")
	check(t, os.Link(dir+"/a", dir+"/b"))
	earlier := func(l linked, name string) string {
		info, err := os.Lstat(dir + "/" + name)
		check(t, err)
		return l.earlier(info, "world/"+name)
	}
	l := linked{}
	if first := earlier(l, "a"); first != "" {
		t.Errorf("the first name is one of %q", first)
	}
	check(t, os.WriteFile(dir+"/b", []byte("two"), 0o644))
	if first := earlier(l, "b"); first != "" {
		t.Errorf("what was written since then is another name of %q", first)
	}
	if first := earlier(l, "a"); first != "world/b" {
		t.Errorf("the file of b is another name of %q", first)
	}
	// As many as there may be are remembered already.
	for i := range uint64(mostLinked) {
		l[fileID{inode: 1 << 40, device: i}] = &linkedFile{}
	}
	for _, name := range []string{"a", "b"} {
		if first := earlier(l, name); first != "" || len(l) != mostLinked {
			t.Errorf("%s is another name of %q, and %d are remembered", name, first, len(l))
		}
	}
}

// A disk that can't have two names of a file has two files.
func TestADiskWithoutHardLinksGetsCopies(t *testing.T) {
	p := newPlace(t)
	write(t, p.archive(), string(packed(t, file("world/a", "content"), hardLinkTo("world/d/b", "world/a"))))
	// The kernel makes no other names of a file that is immutable, by FS_IMMUTABLE_FL of linux/fs.h.
	const flag = 0x10
	immutable := func(is bool) {
		f, err := os.Open(p.world + "/.dormouse-restore-r1/files/a")
		check(t, err)
		defer f.Close()
		flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		check(t, err)
		flags &^= flag
		if is {
			flags |= flag
		}
		check(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)))
	}
	_, err := restore(t.Context(), p.options(commandRestore), logs(t), func(what string) error {
		switch what {
		case "world: write world/d/b":
			immutable(true)
		case "world: finish d":
			immutable(false)
		}
		return nil
	})
	check(t, err)
	want := tree(t, p.world)["a"]
	if got := tree(t, p.world)["d/b"]; got != want || !strings.HasSuffix(got, " content") {
		t.Errorf("the other name is %q, and the file %q", got, want)
	}
}
