package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/pkg/sftp"
)

// Refusals that clients are shown.
var (
	errSpecial = errors.New("this is no regular file, and can't be opened")
	errIsDir   = errors.New("this is a directory")
	errNotDir  = errors.New("this is no directory")
	errRoot    = errors.New("the directory at the top stays as it is")
	errExists  = errors.New("there is a file of that name")
	errLink    = errors.New("a link must be to a relative path without .., so that it stays inside wherever it is moved")
	errFull    = errors.New("the disk is full")
	errQuota   = errors.New("the quota is used up")
	errMany    = errors.New("too many files are open")
	errLate    = errors.New("the files are about to be closed: connect again in a while")
	errGone    = errors.New("the client is gone")
	errOffset  = errors.New("the offset is too large")
)

// disk is the directory that is served. All goes through os.Root, which follows no link to the
// outside, also when a link takes a directory's place meanwhile.
type disk struct {
	root     *os.Root
	uid, gid int
	quota    *quota
}

func openDisk(o Options) (*disk, error) {
	root, err := os.OpenRoot(o.Root)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the directory
	}
	return &disk{root: root, uid: o.UID, gid: o.GID, quota: newQuota(root, o.Quota)}, nil
}

// inside is a client's path, for os.Root.
func inside(clients string) string {
	if name := strings.TrimPrefix(path.Clean("/"+clients), "/"); name != "" {
		return name
	}
	return "."
}

// open opens a regular file.
func (d *disk) open(name string, f sftp.FileOpenFlags) (*os.File, error) {
	mode := os.O_RDONLY
	writes := f.Write || f.Append || f.Creat || f.Trunc
	switch {
	case writes && f.Read:
		mode = os.O_RDWR
	case writes:
		mode = os.O_WRONLY
	}
	// Without it a FIFO that takes the file's place meanwhile would be waited for.
	mode |= syscall.O_NONBLOCK
	if f.Append {
		mode |= os.O_APPEND
	}
	if f.Creat {
		// Apart, so as to know whose owner to set.
		file, err := d.root.OpenFile(name, mode|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			if d.owns() {
				_ = file.Chown(d.uid, d.gid)
			}
			return file, nil
		}
		if f.Excl || !errors.Is(err, fs.ErrExist) {
			return nil, err //nolint:wrapcheck // answer does
		}
	}
	// Opening a device may do something.
	info, err := d.root.Stat(name)
	if err != nil {
		return nil, err //nolint:wrapcheck // answer does
	}
	if err := isRegular(info); err != nil {
		return nil, err
	}
	file, err := d.root.OpenFile(name, mode, 0)
	if err != nil {
		return nil, err //nolint:wrapcheck // answer does
	}
	if err := d.prepare(file, f.Trunc && writes); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// prepare checks what was opened, and makes it empty where that was asked for.
func (d *disk) prepare(file *os.File, truncate bool) error {
	info, err := file.Stat()
	if err != nil {
		return err //nolint:wrapcheck // answer does
	}
	if err := isRegular(info); err != nil || !truncate {
		return err
	}
	return d.quota.resize(file, 0)
}

func isRegular(info fs.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return errIsDir
	}
	return errSpecial
}

func (d *disk) owns() bool { return d.uid >= 0 || d.gid >= 0 }

func (d *disk) mkdir(name string) error {
	if err := d.root.Mkdir(name, 0o777); err != nil {
		return err //nolint:wrapcheck // answer does
	}
	if d.owns() {
		_ = d.root.Lchown(name, d.uid, d.gid)
	}
	return nil
}

// remove removes a directory, or what is none.
func (d *disk) remove(name string, directory bool) error {
	if name == "." {
		return errRoot
	}
	info, err := d.root.Lstat(name)
	switch {
	case err != nil:
		return err //nolint:wrapcheck // answer does
	case directory && !info.IsDir():
		return errNotDir
	case !directory && info.IsDir():
		return errIsDir
	}
	if err := d.root.Remove(name); err != nil {
		return err //nolint:wrapcheck // answer does
	}
	d.quota.freed(info)
	return nil
}

// rename gives a file or a directory another name. What has that name goes if replace is set.
func (d *disk) rename(from, to string, replace bool) error {
	if from == "." || to == "." {
		return errRoot
	}
	replaced, err := d.root.Lstat(to)
	switch {
	case err == nil && !replace:
		return errExists
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err //nolint:wrapcheck // answer does
	}
	source, err := d.root.Lstat(from)
	if err != nil {
		return err //nolint:wrapcheck // answer does
	}
	if err := d.root.Rename(from, to); err != nil {
		return err //nolint:wrapcheck // answer does
	}
	if replaced != nil && !os.SameFile(replaced, source) {
		d.quota.freed(replaced)
	}
	return nil
}

// symlink makes a link. What others that use the disk make of it isn't confined by os.Root: so
// the link must never lead outside, also not once it, or a directory above it, has moved.
func (d *disk) symlink(target, name string) error {
	if target == "" || !fs.ValidPath(path.Clean(target)) || hasDotDot(target) {
		return errLink
	}
	// It may lead over another link, which the game made. What isn't there yet is as good.
	if _, err := d.root.Stat(path.Join(path.Dir(name), target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err //nolint:wrapcheck // answer does
	}
	return d.root.Symlink(target, name) //nolint:wrapcheck // answer does
}

func hasDotDot(target string) bool {
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// setstat sets what a client may set: never the owner, and no bit that gives rights of others.
func (d *disk) setstat(name string, flags sftp.FileAttrFlags, to *sftp.FileStat) error {
	if to == nil {
		return sftp.ErrSSHFxBadMessage
	}
	if flags.UidGid {
		return fs.ErrPermission
	}
	if flags.Size {
		if err := d.truncate(name, to.Size); err != nil {
			return err
		}
	}
	if flags.Permissions {
		if err := d.chmod(name, os.FileMode(to.Mode)&fs.ModePerm); err != nil {
			return err
		}
	}
	if flags.Acmodtime {
		return d.root.Chtimes(name, to.AccessTime(), to.ModTime()) //nolint:wrapcheck // answer does
	}
	return nil
}

func (d *disk) truncate(name string, size uint64) error {
	if size > maxSize {
		return errOffset
	}
	file, err := d.open(name, sftp.FileOpenFlags{Write: true})
	if err != nil {
		return err
	}
	defer file.Close()
	return d.quota.resize(file, int64(size))
}

// chmod sets the mode of a regular file or a directory by its descriptor, where it can be opened:
// by name, os.Root says, a link might take its place meanwhile.
func (d *disk) chmod(name string, mode fs.FileMode) error {
	info, err := d.root.Stat(name)
	if err != nil {
		return err //nolint:wrapcheck // answer does
	}
	if err := isRegular(info); errors.Is(err, errSpecial) {
		return err
	}
	if info.IsDir() {
		// By the first new files have the directory's group, as an fsGroup wants. Without the owner's rights nobody
		// could look into it any more, which a client that sets the mode of a whole tree doesn't mean.
		mode |= info.Mode()&fs.ModeSetgid | 0o700
	}
	file, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		// A file that its owner may not read. On Linux this changes nothing outside: links have no mode.
		return d.root.Chmod(name, mode) //nolint:wrapcheck // answer does
	}
	if err != nil {
		return err //nolint:wrapcheck // answer does
	}
	defer file.Close()
	return file.Chmod(mode) //nolint:wrapcheck // answer does
}

// answer is what a client is shown of an error: what went wrong, without the call and its path.
func answer(err error) error {
	var inPath *fs.PathError
	var inLink *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return sftp.ErrSSHFxNoSuchFile
	case errors.Is(err, fs.ErrPermission):
		return sftp.ErrSSHFxPermissionDenied
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errFull
	case errors.As(err, &inPath):
		return errors.New(inPath.Err.Error())
	case errors.As(err, &inLink):
		return errors.New(inLink.Err.Error())
	}
	return err
}
