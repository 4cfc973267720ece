package conn

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// taken is a connection that is this test's.
func taken(t *testing.T, c *net.TCPConn) int {
	t.Helper()
	fd, err := Take(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func TestPipesMoveAllBytes(t *testing.T) {
	from, b := pair(t)
	c, to := pair(t)
	src, dst := taken(t, b), taken(t, c)
	sent := make([]byte, 5<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	go func() {
		_, _ = from.Write(sent)
		_ = from.Close()
	}()
	got := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(to)
		got <- all
	}()
	wait := func(fd int, events int16) {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, 5000); n != 1 {
			t.Fatalf("nothing happens: %v", err)
		}
	}
	p := BorrowPipe()
	defer p.Return()
	for {
		n, errno := p.Fill(src, pipeBytes)
		if errno == unix.EAGAIN {
			wait(src, unix.POLLIN)
			continue
		}
		if errno != 0 {
			t.Fatal(errno)
		}
		if n == 0 {
			break
		}
		if p.Held() != n {
			t.Fatalf("%d bytes are in the pipe after %d came in", p.Held(), n)
		}
		for errno := p.Drain(dst); errno != 0; errno = p.Drain(dst) {
			if errno != unix.EAGAIN {
				t.Fatal(errno)
			}
			wait(dst, unix.POLLOUT)
		}
		if p.Held() != 0 {
			t.Fatalf("%d bytes are left in a pipe that was emptied", p.Held())
		}
	}
	if err := unix.Shutdown(dst, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(<-got, sent) {
		t.Error("other bytes came than were sent")
	}
}

func TestPipesAreBounded(t *testing.T) {
	var all []*Pipe
	for p := BorrowPipe(); p != nil; p = BorrowPipe() {
		all = append(all, p)
	}
	for _, p := range all {
		p.Return()
	}
	if len(all) != maxPipes {
		t.Errorf("%d pipes were lent, want %d", len(all), maxPipes)
	}
	p := BorrowPipe()
	if p == nil {
		t.Fatal("none is lent though all came back")
	}
	p.Return()
}

func TestPipesKeepNoOthersBytes(t *testing.T) {
	p := BorrowPipe()
	if _, err := unix.Write(p.write, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	p.held = 6
	made := pipes.made.Load()
	p.Return()
	if now := pipes.made.Load(); now != made-1 {
		t.Errorf("%d pipes are left of %d after one came back with bytes", now, made)
	}
}
