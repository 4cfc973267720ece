package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"dormouse.dev/dormouse/sidecar/internal/backup/durable"
	"dormouse.dev/dormouse/sidecar/internal/backup/fault"
)

// mostTries is how often a directory is made anew that is deleted meanwhile.
const mostTries = 20

// fileStore keeps an archive in a file <root>/<dir>/<name>. dir is made and removed as it is needed.
type fileStore struct {
	root      *os.Root
	dir, name string
}

func newFile(file string) (*fileStore, error) {
	dir := filepath.Dir(file)
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, fmt.Errorf("open the directory of archives: %w", err)
	}
	return &fileStore{root: root, dir: filepath.Base(dir), name: filepath.Base(file)}, nil
}

// Close implements Store.
func (s *fileStore) Close() { _ = s.root.Close() }

func (s *fileStore) path() string { return path.Join(s.dir, s.name) }

// partial is the file's name while it is written.
func (s *fileStore) partial() string { return path.Join(s.dir, "."+s.name+".partial") }

// Create implements Store.
func (s *fileStore) Create(context.Context) (Sink, error) {
	// Remove, of another archive, may delete the directory meanwhile.
	var f *os.File
	var err error
	for range mostTries {
		if err = s.root.MkdirAll(s.dir, 0o755); err != nil {
			break
		}
		// Another try may have left one.
		if err = s.root.Remove(s.partial()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
		f, err = s.root.OpenFile(s.partial(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, s.explain("make", err)
	}
	return &fileSink{store: s, file: f}, nil
}

// Open implements Store.
func (s *fileStore) Open(context.Context) (io.ReadCloser, error) {
	f, err := s.root.OpenFile(s.path(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Final("the archive %s isn't there", s.path())
	}
	if err != nil {
		return nil, s.explain("open", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.Final("%s is no file", s.path())
	}
	if err != nil {
		_ = f.Close()
		return nil, s.explain("open", err)
	}
	return f, nil
}

// Remove implements Store.
func (s *fileStore) Remove(context.Context) error {
	for _, name := range []string{s.path(), s.partial()} {
		if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s.explain("delete", err)
		}
	}
	if err := durable.SyncDir(s.root, s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.explain("delete", err)
	}
	// It stays where there are other archives in it.
	_ = s.root.Remove(s.dir)
	return nil
}

func (s *fileStore) explain(verb string, err error) error {
	if fault.IsFull(err) {
		return fmt.Errorf("%s the archive %s: the disk of the archives is full: %w", verb, s.path(), err)
	}
	return fmt.Errorf("%s the archive %s: %w", verb, s.path(), err)
}

// fileSink writes the archive's file.
type fileSink struct {
	store *fileStore
	file  *os.File
}

// Write implements Sink.
func (s *fileSink) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	if err != nil {
		return n, s.store.explain("write", err)
	}
	return n, nil
}

// Commit implements Sink.
func (s *fileSink) Commit() error {
	if err := s.finish(); err != nil {
		s.drop()
		return s.store.explain("finish", err)
	}
	return nil
}

var errOtherTry = errors.New("another try to write it is under way")

func (s *fileSink) finish() error {
	if err := s.file.Sync(); err != nil {
		return err //nolint:wrapcheck // Commit does
	}
	if !s.own() {
		return errOtherTry
	}
	if err := s.file.Close(); err != nil {
		return err //nolint:wrapcheck // Commit does
	}
	if err := s.store.root.Rename(s.store.partial(), s.store.path()); err != nil {
		return err //nolint:wrapcheck // Commit does
	}
	err := durable.SyncDir(s.store.root, s.store.dir)
	if err == nil {
		err = durable.SyncDir(s.store.root, ".")
	}
	if err != nil {
		_ = s.store.root.Remove(s.store.path())
	}
	return err
}

// own reports whether the file has its name still: a later try, made because this one's node was lost
// to the cluster, gives the name to its own.
func (s *fileSink) own() bool {
	mine, err := s.file.Stat()
	if err != nil {
		return false
	}
	named, err := s.store.root.Lstat(s.store.partial())
	return err == nil && os.SameFile(mine, named)
}

// Abort implements Sink.
func (s *fileSink) Abort(error) { s.drop() }

func (s *fileSink) drop() {
	if s.own() {
		_ = s.store.root.Remove(s.store.partial())
	}
	_ = s.file.Close()
	_ = s.store.root.Remove(s.store.dir)
}
