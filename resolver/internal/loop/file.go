package loop

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// File is a socket that a loop waits for. It is for its loop alone once it waits.
type File struct {
	// Loop is nil where all loops wait, and FD is the file descriptor. Open sets both.
	Loop    *Loop
	FD      int
	handler Handler
	wanted  uint32
	// serial distinguishes it from earlier files with the same number.
	serial int32
}

var serials atomic.Int32

// files are all files by their numbers. A page of them is made when it is first needed.
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

// Open gives a non-blocking file to a loop, which does not wait for it yet.
func (f *File) Open(l *Loop, fd int, h Handler) error {
	*f = File{Loop: l, handler: h, FD: fd, serial: serials.Add(1)}
	l.open.Add(1)
	return keep(fd, f)
}

// OpenShared gives a file to all loops. When it is ready one of them is notified, or several
// that are idle. It may wait for In, or nothing at all.
func (f *File) OpenShared(fd int, h Handler) error {
	once.Do(startAll)
	*f = File{handler: h, FD: fd, serial: serials.Add(1)}
	return keep(fd, f)
}

// Want has the loop wait for In, Out, both, Broken alone, or nothing at all. Before the file
// waits for the first time any goroutine may call it. After an error the loop waits for what it
// did before; a file shared by all loops then waits for nothing.
func (f *File) Want(events uint32) error {
	was := f.wanted
	if was == events {
		return nil
	}
	op := unix.EPOLL_CTL_MOD
	switch {
	case was == 0:
		op = unix.EPOLL_CTL_ADD
	case events == 0:
		// Even without events in its set a file would be reported as broken.
		op = unix.EPOLL_CTL_DEL
	}
	f.wanted = events
	if f.Loop == nil {
		return f.wantInAll(op, events)
	}
	e := unix.EpollEvent{Events: events, Fd: int32(f.FD), Pad: f.serial} //nolint:gosec // a file's number
	err := unix.EpollCtl(f.Loop.epoll, op, f.FD, &e)
	if err != nil {
		f.wanted = was
	}
	return os.NewSyscallError("epoll_ctl", err)
}

// wantInAll is Want for a file that all loops share.
func (f *File) wantInAll(op int, events uint32) error {
	for i, l := range loops {
		err := l.control(op, f, events|unix.EPOLLEXCLUSIVE)
		if err == nil || op == unix.EPOLL_CTL_DEL {
			continue
		}
		// Either all loops wait or none does.
		for _, waiting := range loops[:i] {
			_ = waiting.control(unix.EPOLL_CTL_DEL, f, 0)
		}
		f.wanted = 0
		return err
	}
	return nil
}

// Leave has the loop forget the file, which stays open.
func (f *File) Leave() {
	_ = f.Want(0)
	f.forget()
}

// Close closes the file.
func (f *File) Close() {
	f.forget()
	_ = unix.Close(f.FD)
}

func (f *File) forget() {
	if f.FD < pages*pageFiles { // else Open failed
		files[f.FD/pageFiles].Load()[f.FD%pageFiles].Store(nil)
	}
	if f.Loop != nil {
		f.Loop.open.Add(-1)
	}
}
