package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNoProcessOfTheClusterKeepsItsMakersFiles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	given, err := unix.Dup(int(f.Fd())) // Unlike what Go opens, it goes to children.
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(given) }()
	if err := keepFiles(); err != nil {
		t.Fatal(err)
	}
	flags, err := unix.FcntlInt(uintptr(given), unix.F_GETFD, 0)
	if err != nil {
		t.Fatal(err)
	}
	if flags&unix.FD_CLOEXEC == 0 {
		t.Error("a file that this process was given goes to the processes that it starts")
	}
}
