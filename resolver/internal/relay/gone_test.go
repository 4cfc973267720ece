package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
)

// once is a handler that reports the first event.
type once chan struct{}

func (o once) Ready(*loop.Loop, uint32) {
	select {
	case o <- struct{}{}:
	default:
	}
}

// A relay that ends because its loop can't wait for one side doesn't touch the other side's
// number any more. Whoever has got that number would not hear of anything.
func TestARelayThatHasEndedLeavesItsNumbersAlone(t *testing.T) { //nolint:paralleltest // a number is to be free again
	client, inside := connected(t)
	outside, server := connected(t)
	clientFD, err := conn.Take(inside)
	if err != nil {
		t.Fatal(err)
	}
	serverFD, err := conn.Take(outside)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) })
	l, heard, ended := loop.Next(), make(once, 1), make(chan error, 1)
	var newcomer loop.File
	Start(NewGroup(context.Background()), l, clientFD, serverFD, &Options{}, func(Ended) {
		fd, err := unix.FcntlInt(uintptr(pair[0]), unix.F_DUPFD_CLOEXEC, serverFD)
		if err == nil && fd != serverFD {
			t.Errorf("the newcomer has number %d, want %d, which the relay has closed", fd, serverFD)
		}
		if err == nil {
			err = newcomer.Open(l, fd, heard)
		}
		if err == nil {
			err = newcomer.Want(loop.In)
		}
		ended <- err
	})
	epoll := waiterFor(t, serverFD)

	// The server reads nothing, so that the relay waits for it alone, and no more for the client.
	go func() {
		for bulk := make([]byte, 1<<20); ; {
			if _, err := client.Write(bulk); err != nil {
				return
			}
		}
	}()
	// Then the number is added without the relay's knowledge, so that the loop fails when it is to
	// wait for the client again.
	look, late := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer look.Stop()
	for {
		err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, clientFD, &unix.EpollEvent{Fd: int32(clientFD)})
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EEXIST) {
			t.Fatal(err)
		}
		select {
		case <-look.C:
		case <-late:
			t.Fatal("the relay still reads what the server has no room for")
		}
	}
	go func() { _, _ = io.Copy(io.Discard, server) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the relay never ended")
	}
	defer l.Do(newcomer.Close)
	loop.Settle()
	if _, err := unix.Write(pair[1], []byte("x")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-heard:
	case <-time.After(10 * time.Second):
		t.Error("whoever got the number of the relay's server hears nothing")
	}
}

// waiterFor is the number of the epoll that waits for a file.
func waiterFor(t *testing.T, fd int) int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if to, err := os.Readlink(name); err != nil || to != "anon_inode:[eventpoll]" {
			continue
		}
		epoll, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		if waitsFor(t, epoll, fd) {
			return epoll
		}
	}
	t.Fatalf("nothing waits for file %d", fd)
	return 0
}

// waitsFor reports whether an epoll waits for a file.
func waitsFor(t *testing.T, epoll, fd int) bool {
	t.Helper()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", epoll))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(fmt.Sprintf(`(?m)^tfd:\s+%d\s`, fd)).Match(info)
}
