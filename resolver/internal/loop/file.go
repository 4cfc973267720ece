package loop

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// File is a socket that a loop waits for. It is for its loop alone once it waits.
type File struct {
	loop    *Loop
	handler Handler
	fd      int
	wanted  uint32
}

// files are all files by their numbers. A page is made when it is needed first.
const (
	pageFiles = 1024
	pages     = 1024
)

type page [pageFiles]atomic.Pointer[File]

var files [pages]atomic.Pointer[page]

var errTooMany = errors.New("the file's number is too large")

func fileOf(fd int) *File {
	if p := files[fd/pageFiles%pages].Load(); p != nil {
		return p[fd%pageFiles].Load()
	}
	return nil
}

func keep(fd int, f *File) error {
	if fd >= pages*pageFiles {
		return errTooMany
	}
	at := &files[fd/pageFiles]
	p := at.Load()
	if p == nil {
		if p = new(page); !at.CompareAndSwap(nil, p) {
			p = at.Load()
		}
	}
	p[fd%pageFiles].Store(f)
	return nil
}

// Open gives a file that doesn't block to a loop, which does not wait for it yet.
func (f *File) Open(l *Loop, fd int, h Handler) error {
	*f = File{loop: l, handler: h, fd: fd}
	return keep(fd, f)
}

// FD is the file's number.
func (f *File) FD() int { return f.fd }

// Loop is the file's loop.
func (f *File) Loop() *Loop { return f.loop }

// Want has the loop wait for In, Out, both, or nothing at all. Before the file waits
// for the first time it is for any goroutine.
func (f *File) Want(events uint32) error {
	was := f.wanted
	if was == events {
		return nil
	}
	f.wanted = events
	switch {
	case was == 0:
		return f.loop.control(unix.EPOLL_CTL_ADD, f.fd, events)
	case events == 0:
		// A file that is not waited for at all would still be told to be broken.
		return f.loop.control(unix.EPOLL_CTL_DEL, f.fd, 0)
	}
	return f.loop.control(unix.EPOLL_CTL_MOD, f.fd, events)
}

// Leave has the loop forget the file, which stays open.
func (f *File) Leave() {
	_ = f.Want(0)
	_ = keep(f.fd, nil)
}

// Close closes the file.
func (f *File) Close() {
	_ = keep(f.fd, nil)
	_ = unix.Close(f.fd)
}
