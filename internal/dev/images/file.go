package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// File is one entry of an image: a file, a symbolic link or a directory. Make
// one with [FromHost], [Bytes], [Link] or [Dir].
type File struct {
	kind   byte
	source string
	data   []byte
	link   string
	mode   fs.FileMode
	owner  int
}

// FromHost is a copy of the regular file at path, with the file's own
// permissions.
func FromHost(path string) File {
	return File{kind: tar.TypeReg, source: path}
}

// Bytes is a file with the given content.
func Bytes(data []byte, mode fs.FileMode) File {
	return File{kind: tar.TypeReg, data: data, mode: mode}
}

// Link is a symbolic link to target, which is taken as it is.
func Link(target string) File {
	return File{kind: tar.TypeSymlink, link: target, mode: 0o777}
}

// Dir is a directory. Parents of other entries need none: they exist with mode
// 0755.
func Dir(mode fs.FileMode) File {
	return File{kind: tar.TypeDir, mode: mode}
}

// OwnedBy returns the entry with another owner, as user and as group; entries
// belong to root otherwise.
func (f File) OwnedBy(id int) File {
	f.owner = id
	return f
}

// header describes the entry in a layer. The times are left at zero: they
// would make two builds of one binary differ.
func (f File) header(name string) (*tar.Header, error) {
	h := &tar.Header{
		Typeflag: f.kind,
		Name:     name,
		Linkname: f.link,
		Mode:     tarMode(f.mode),
		Uid:      f.owner,
		Gid:      f.owner,
		Format:   tar.FormatPAX,
	}
	switch {
	case f.kind == tar.TypeDir:
		h.Name += "/"
	case f.source != "":
		info, err := os.Stat(f.source)
		if err != nil {
			return nil, fmt.Errorf("read file for %s: %w", name, err)
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("read file for %s: %s is not a regular file", name, f.source)
		}
		h.Mode, h.Size = tarMode(info.Mode()), info.Size()
	default:
		h.Size = int64(len(f.data))
	}
	return h, nil
}

func (f File) open() (io.ReadCloser, error) {
	if f.source != "" {
		return os.Open(f.source)
	}
	return io.NopCloser(bytes.NewReader(f.data)), nil
}

// tarMode keeps the bits that Go and tar number differently.
func tarMode(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	for _, special := range []struct {
		mode fs.FileMode
		bit  int64
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if mode&special.mode != 0 {
			bits |= special.bit
		}
	}
	return bits
}
