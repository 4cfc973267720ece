package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/sftp"
)

func TestFilesAreWrittenReadAndMoved(t *testing.T) {
	w := newWorld(t, nil)
	c := w.sftp()
	check(t, c.Mkdir("world"))
	check(t, put(c, "world/level.dat", "level"))
	check(t, c.Rename("world/level.dat", "world/old.dat"))
	check(t, put(c, "world/level.dat", "newer"))
	wantError(t, "rename over a file", c.Rename("world/level.dat", "world/old.dat"), "there is a file of that name")
	check(t, c.PosixRename("world/level.dat", "world/old.dat"))
	f, err := c.Open("world/old.dat")
	check(t, err)
	content, err := io.ReadAll(f)
	check(t, errors.Join(err, f.Close()))
	if string(content) != "newer" {
		t.Errorf("read %q", content)
	}
	when := time.Unix(1_700_000_000, 0)
	check(t, c.Chtimes("world/old.dat", when, when))
	check(t, c.Chmod("world/old.dat", 0o4750|fs.ModeSetuid|fs.ModeSetgid))
	check(t, c.Truncate("world/old.dat", 3))
	info, err := os.Stat(w.root + "/world/old.dat")
	check(t, err)
	if info.Mode() != 0o750 || info.Size() != 3 {
		t.Errorf("mode %v and size %d, want 0750 and 3", info.Mode(), info.Size())
	}
	wantError(t, "chown", c.Chown("world/old.dat", 0, 0), "permission denied")
	wantError(t, "hard link", c.Link("world/old.dat", "world/hard"), "")
	wantError(t, "remove the root", c.RemoveDirectory("/"), "stays as it is")
	wantError(t, "remove what isn't empty", c.RemoveDirectory("world"), "")
	check(t, c.Remove("world/old.dat"))
	check(t, c.RemoveDirectory("world"))
	_, err = c.Stat("world")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat: %v", err)
	}
}

func TestNewFilesGetTheirOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away takes root")
	}
	w := newWorld(t, func(o *Options) { o.UID, o.GID = 1234, 4321 })
	c := w.sftp()
	check(t, put(c, "file", ""))
	check(t, c.Mkdir("dir"))
	for _, name := range []string{"file", "dir"} {
		info, err := os.Stat(w.root + "/" + name)
		check(t, err)
		if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 1234 || stat.Gid != 4321 {
			t.Errorf("%s is of %d:%d", name, stat.Uid, stat.Gid)
		}
	}
}

func TestALargeDirectoryIsListedWhole(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 333 {
		w.write(w.root+"/"+strconv.Itoa(i), "")
	}
	list, err := w.sftp().ReadDir("/")
	check(t, err)
	if len(list) != 333 {
		t.Errorf("%d files, want 333", len(list))
	}
}

// A partial upload goes on where it ended, at its offset or by appending.
func TestAnUploadIsResumed(t *testing.T) {
	w := newWorld(t, nil)
	c := w.sftp()
	whole := strings.Repeat("0123456789abcdef", 64<<10)
	half := whole[:len(whole)/2]
	check(t, put(c, "offset", half))
	f, err := c.OpenFile("offset", os.O_WRONLY)
	check(t, err)
	_, err = f.Seek(int64(len(half)), io.SeekStart)
	check(t, err)
	_, err = f.ReadFrom(strings.NewReader(whole[len(half):]))
	check(t, errors.Join(err, f.Close()))

	check(t, put(c, "append", half))
	f, err = c.OpenFile("append", os.O_WRONLY|os.O_APPEND)
	check(t, err)
	// Many writes are under way at a time.
	_, err = f.ReadFromWithConcurrency(strings.NewReader(whole[len(half):]), 16)
	check(t, errors.Join(err, f.Close()))
	for _, name := range []string{"offset", "append"} {
		if w.read(w.root+"/"+name) != whole {
			t.Errorf("%s isn't what was sent", name)
		}
	}
}

func TestNothingLeadsOutside(t *testing.T) {
	w := newWorld(t, nil)
	w.write(w.outside+"/secret", "secret")
	c := w.sftp()
	// As a game may make them.
	for name, target := range map[string]string{"abs": w.outside, "rel": "../outside", "file": "../outside/secret", "made": "../outside/new"} {
		check(t, os.Symlink(target, w.root+"/"+name))
	}
	check(t, os.Mkdir(w.root+"/in", 0o755))
	for _, name := range []string{"../outside/secret", "/../outside/secret", w.outside + "/secret", "abs/secret", "rel/secret", "file", "in/../../outside/secret"} {
		for what, try := range map[string]func() error{
			"read": func() error { _, err := c.Open(name); return err },
			"write": func() error {
				_, err := c.OpenFile(name, os.O_WRONLY|os.O_TRUNC)
				return err
			},
			"stat":     func() error { _, err := c.Stat(name); return err },
			"truncate": func() error { return c.Truncate(name, 0) },
			"chmod":    func() error { return c.Chmod(name, 0o777) },
			"times":    func() error { return c.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)) },
		} {
			wantError(t, what+" "+name, try(), "")
		}
	}
	for _, dir := range []string{"abs", "rel"} {
		wantError(t, "create in "+dir, put(c, dir+"/new", "x"), "escapes")
		wantError(t, "mkdir in "+dir, c.Mkdir(dir+"/new"), "escapes")
		wantError(t, "remove in "+dir, c.Remove(dir+"/secret"), "escapes")
		wantError(t, "rename out of "+dir, c.PosixRename(dir+"/secret", "mine"), "escapes")
		wantError(t, "rename into "+dir, c.PosixRename("in", dir+"/new"), "escapes")
		wantError(t, "link in "+dir, c.Symlink("secret", dir+"/new"), "escapes")
		_, err := c.ReadDir(dir)
		wantError(t, "list "+dir, err, "")
	}
	wantError(t, "create by a link", put(c, "made", "x"), "")
	w.nothingOutside()
	// They can be looked at and removed.
	if target, err := c.ReadLink("rel"); err != nil || target != "../outside" {
		t.Errorf("the link is to %q, %v", target, err)
	}
	check(t, c.Remove("rel"))
	w.nothingOutside()
}

func TestLinksOfClientsStayInside(t *testing.T) {
	w := newWorld(t, nil)
	c := w.sftp()
	check(t, c.MkdirAll("a/b"))
	check(t, put(c, "a/b/file", "x"))
	check(t, os.Symlink("../../outside", w.root+"/a/out"))
	for _, target := range []string{"/etc/passwd", w.root + "/a", "../a", "..", "b/../../x", "./../x", "out/secret", ""} {
		if err := c.Symlink(target, "a/link"); err == nil {
			t.Errorf("a link to %q was made", target)
		}
	}
	if _, err := os.Lstat(w.root + "/a/link"); err == nil {
		t.Fatal("a link is there")
	}
	check(t, c.Symlink("b/file", "a/link"))
	check(t, c.Symlink("later", "dangling"))
	if target, err := os.Readlink(w.root + "/a/link"); err != nil || target != "b/file" || w.read(w.root+"/a/link") != "x" {
		t.Errorf("the link is to %q, %v", target, err)
	}
}

func TestSpecialFilesArentOpened(t *testing.T) {
	w := newWorld(t, nil)
	c := w.sftp()
	check(t, syscall.Mkfifo(w.root+"/fifo", 0o600))
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	check(t, err)
	defer func() { _ = syscall.Close(socket) }()
	// Its path may have 108 bytes.
	t.Chdir(w.root)
	check(t, syscall.Bind(socket, &syscall.SockaddrUnix{Name: "socket"}))
	names := []string{"fifo", "socket"}
	// Not every container may make a device.
	if syscall.Mknod(w.root+"/device", syscall.S_IFCHR|0o600, 1<<8|5) == nil {
		names = append(names, "device")
	}
	for _, name := range names {
		for _, flags := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREATE | os.O_TRUNC} {
			_, err := c.OpenFile(name, flags)
			wantError(t, name, err, "no regular file")
		}
		wantError(t, "chmod "+name, c.Chmod(name, 0o777), "no regular file")
	}
}

// A link takes a directory's place again and again while a client writes there.
func TestASwappedDirectoryLeadsNowhere(t *testing.T) {
	w := newWorld(t, nil)
	w.write(w.outside+"/secret", "secret")
	check(t, os.Mkdir(w.root+"/dir", 0o755))
	check(t, os.Symlink(w.outside, w.root+"/link"))
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, move := range [][2]string{{"dir", "kept"}, {"link", "dir"}, {"dir", "link"}, {"kept", "dir"}} {
				_ = os.Rename(filepath.Join(w.root, move[0]), filepath.Join(w.root, move[1]))
			}
		}
	})
	c := w.sftp()
	written, refused := 0, 0
	for i := 0; written < 50 || refused < 50; i++ {
		name := "dir/" + strconv.Itoa(i%10)
		if err := put(c, name, "x"); err != nil {
			refused++
		} else {
			written++
		}
		_ = c.Chmod("dir/secret", 0o777)
		_ = c.Remove("dir/secret")
		_ = c.Mkdir("dir/made")
		_ = c.PosixRename(name, "dir/secret")
		_ = c.Truncate("dir/secret", 0)
	}
	close(stop)
	swapping.Wait()
	w.nothingOutside()
	if info, err := os.Stat(w.outside + "/secret"); err != nil || info.Mode() != 0o600 {
		t.Errorf("outside: %v, %v", info, err)
	}
}

func TestTheQuotaBoundsTheFiles(t *testing.T) {
	// What the game wrote before counts.
	w := newWorld(t, func(o *Options) {
		o.Quota = 100 << 10
		check(t, os.Mkdir(o.Root+"/world", 0o755))
		check(t, os.WriteFile(o.Root+"/world/region", make([]byte, 60<<10), 0o600))
	})
	c := w.sftp()
	check(t, put(c, "small", strings.Repeat("x", 30<<10)))
	// Writing again what is there takes no more.
	check(t, put(c, "small", strings.Repeat("y", 30<<10)))
	err := put(c, "large", strings.Repeat("x", 20<<10))
	wantError(t, "beyond the quota", err, "the quota is used up")
	var status *sftp.StatusError
	if !errors.As(err, &status) || status.FxCode() != sftp.ErrSSHFxFailure {
		t.Errorf("error %#v, want SSH_FX_FAILURE", err)
	}
	wantError(t, "resize beyond the quota", c.Truncate("small", 50<<10), "the quota is used up")
	if w.refused(refusedQuota) != 2 {
		t.Errorf("%d refusals are counted", w.refused(refusedQuota))
	}
	check(t, c.Remove("world/region"))
	check(t, put(c, "large", strings.Repeat("x", 60<<10)))
	check(t, c.PosixRename("large", "small"))
	check(t, put(c, "other", strings.Repeat("x", 40<<10)))
}

// /dev/full stands for a disk: each write to it fails as one on a full disk does.
func TestAFullDiskIsSaid(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	w := newWorld(t, nil)
	f := &file{File: full, handler: &handler{disk: w.disk, metrics: w.metrics}, appends: true}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
	check(t, f.Close())
}
