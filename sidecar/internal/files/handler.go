package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/pkg/sftp"
)

// mostOpen bounds the files and directories that a connection has open.
const mostOpen = 128

// handler does what one connection's SFTP asks for.
type handler struct {
	disk    *disk
	metrics *metrics
	open    atomic.Int32
	// late is closed when no upload may begin any more; nil: they always may.
	late <-chan struct{}
	// uploads are the files that are open for writing, and written what came for them, in bytes.
	uploads atomic.Int32
	written atomic.Int64
	// gone is closed once the client is gone, and waits is called now and then while the server has it wait.
	gone  <-chan struct{}
	waits func()
}

var (
	_ sftp.OpenFileWriter       = (*handler)(nil)
	_ sftp.PosixRenameFileCmder = (*handler)(nil)
	_ sftp.LstatFileLister      = (*handler)(nil)
	_ sftp.ReadlinkFileLister   = (*handler)(nil)
)

func (h *handler) handlers() sftp.Handlers {
	return sftp.Handlers{FileGet: h, FilePut: h, FileCmd: h, FileList: h}
}

// answer counts what is refused, and makes it readable for the client.
func (h *handler) answer(err error) error {
	switch {
	case errors.Is(err, errMany):
		h.metrics.refused(refusedFiles)
	case errors.Is(err, errQuota):
		h.metrics.refused(refusedQuota)
	}
	return answer(err)
}

// opened opens something within the bound.
func (h *handler) opened(open func() (*os.File, error)) (*os.File, error) {
	if h.open.Add(1) > mostOpen {
		h.open.Add(-1)
		return nil, errMany
	}
	f, err := open()
	if err != nil {
		h.open.Add(-1)
	}
	return f, err
}

// OpenFile implements sftp.OpenFileWriter.
func (h *handler) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) { return h.file(r) }

// Fileread implements sftp.FileReader.
func (h *handler) Fileread(r *sftp.Request) (io.ReaderAt, error) { return h.file(r) }

// Filewrite implements sftp.FileWriter.
func (h *handler) Filewrite(r *sftp.Request) (io.WriterAt, error) { return h.file(r) }

func (h *handler) file(r *sftp.Request) (*file, error) {
	flags := r.Pflags()
	uploads := flags.Write || flags.Append || flags.Creat || flags.Trunc
	if uploads {
		// Counted first: once it is late, one that is let in is seen.
		h.uploads.Add(1)
		if h.isLate() {
			h.uploads.Add(-1)
			return nil, h.answer(errLate)
		}
	}
	f, err := h.opened(func() (*os.File, error) { return h.disk.open(inside(r.Filepath), flags) })
	if err != nil {
		if uploads {
			h.uploads.Add(-1)
		}
		return nil, h.answer(err)
	}
	return &file{File: f, handler: h, appends: flags.Append, uploads: uploads}, nil
}

// awaitQuota waits until the disk was measured once, and reports whether the client is still there. Meanwhile the session
// isn't idle.
func (h *handler) awaitQuota() bool { return h.disk.quota.await(h.gone, h.waits) }

func (h *handler) isLate() bool {
	select {
	case <-h.late:
		return true
	default:
		return false
	}
}

// Filecmd implements sftp.FileCmder.
func (h *handler) Filecmd(r *sftp.Request) error {
	name := inside(r.Filepath)
	switch r.Method {
	case "Setstat":
		if r.AttrFlags().Size && !h.awaitQuota() {
			return h.answer(errGone)
		}
		return h.answer(h.disk.setstat(name, r.AttrFlags(), r.Attributes()))
	case "Rename":
		return h.answer(h.disk.rename(name, inside(r.Target), false))
	case "Remove":
		return h.answer(h.disk.remove(name, false))
	case "Rmdir":
		return h.answer(h.disk.remove(name, true))
	case "Mkdir":
		return h.answer(h.disk.mkdir(name))
	case "Symlink":
		// The library has the target, as the client wrote it, in Filepath.
		return h.answer(h.disk.symlink(r.Filepath, inside(r.Target)))
	}
	return sftp.ErrSSHFxOpUnsupported
}

// PosixRename implements sftp.PosixRenameFileCmder.
func (h *handler) PosixRename(r *sftp.Request) error {
	return h.answer(h.disk.rename(inside(r.Filepath), inside(r.Target), true))
}

// Filelist implements sftp.FileLister.
func (h *handler) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	name := inside(r.Filepath)
	if r.Method == "Stat" {
		info, err := h.disk.root.Stat(name)
		return one{info}, h.answer(err)
	}
	f, err := h.opened(func() (*os.File, error) {
		return h.disk.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, h.answer(err)
	}
	return &directory{name: name, file: file{File: f, handler: h}}, nil
}

// Lstat implements sftp.LstatFileLister.
func (h *handler) Lstat(r *sftp.Request) (sftp.ListerAt, error) {
	info, err := h.disk.root.Lstat(inside(r.Filepath))
	return one{info}, h.answer(err)
}

// Readlink implements sftp.ReadlinkFileLister.
func (h *handler) Readlink(name string) (string, error) {
	target, err := h.disk.root.Readlink(inside(name))
	return target, h.answer(err)
}

// one is a list of one.
type one struct{ info fs.FileInfo }

// ListAt implements sftp.ListerAt.
func (o one) ListAt(list []fs.FileInfo, _ int64) (int, error) {
	return copy(list, []fs.FileInfo{o.info}), io.EOF
}

// file is a file that a client has open.
type file struct {
	*os.File
	handler *handler
	appends bool
	// uploads is set where it was opened for writing.
	uploads bool
	once    sync.Once
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(p, at)
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	return n, f.handler.answer(err)
}

// WriteAt implements io.WriterAt. Where the file was opened to append, it writes at its end,
// whatever the offset.
func (f *file) WriteAt(p []byte, at int64) (int, error) {
	write, end := func() (int, error) { return f.File.WriteAt(p, at) }, at+int64(len(p))
	switch {
	case f.appends:
		write, end = func() (int, error) { return f.Write(p) }, -1
	case at < 0 || at > maxSize:
		return 0, errOffset
	}
	if !f.handler.awaitQuota() {
		return 0, f.handler.answer(errGone)
	}
	n, err := f.handler.disk.quota.write(f.File, end, p, write)
	f.handler.written.Add(int64(n))
	return n, f.handler.answer(err)
}

// Close implements io.Closer.
func (f *file) Close() error {
	f.once.Do(func() {
		f.handler.open.Add(-1)
		if f.uploads {
			f.handler.uploads.Add(-1)
		}
	})
	return answer(f.File.Close())
}

// directory is one that a client reads.
type directory struct {
	file

	name string
}

// ListAt implements sftp.ListerAt. The library asks for one part after the other.
func (d *directory) ListAt(list []fs.FileInfo, _ int64) (n int, _ error) {
	for n == 0 {
		names, err := d.Readdirnames(len(list))
		for _, name := range names {
			// Each by os.Root: the directory's own name may have become a link's.
			info, err := d.handler.disk.root.Lstat(path.Join(d.name, name))
			if err != nil {
				continue
			}
			list[n] = info
			n++
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return n, io.EOF
			}
			return n, answer(err)
		}
	}
	return n, nil
}
