package conn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/loop"
)

// What waits is woken by what it waits for: bytes, room, the deadline, a cut.
func TestAStreamWaitsForWhatItNeeds(t *testing.T) {
	t.Parallel()
	far, near := pair(t)
	s := stream(t, near)
	r := NewReader(s, nil)
	type heard struct {
		text string
		err  error
	}
	next := func() chan heard {
		got := make(chan heard, 1)
		go func() {
			chunk, err := r.Next(100)
			h := heard{string(chunk), err}
			if err == nil {
				r.Done()
			}
			got <- h
		}()
		return got
	}
	got := next()
	if _, err := far.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if h := <-got; h.err != nil || h.text != "hello" {
		t.Fatalf("heard %q, %v", h.text, h.err)
	}

	// A deadline that is set while it waits ends the wait, and another one lets it go on.
	got = next()
	if err := s.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if h := <-got; !errors.Is(h.err, os.ErrDeadlineExceeded) {
		t.Fatalf("after the deadline heard %q, %v", h.text, h.err)
	}
	_ = s.SetReadDeadline(time.Time{})
	got = next()
	if _, err := far.Write([]byte("again")); err != nil {
		t.Fatal(err)
	}
	if h := <-got; h.err != nil || h.text != "again" {
		t.Fatalf("heard %q, %v", h.text, h.err)
	}

	got = next()
	s.Cut()
	if h := <-got; !errors.Is(h.err, net.ErrClosed) {
		t.Fatalf("after the cut heard %q, %v", h.text, h.err)
	}
}

// More than the sockets have room for is written as it is read, and all of it arrives.
func TestAStreamWritesAllThatItIsGiven(t *testing.T) {
	t.Parallel()
	far, near := pair(t)
	s := stream(t, near)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	written := make(chan error, 1)
	go func() {
		n, err := s.Write(sent)
		if err == nil && n != len(sent) {
			err = io.ErrShortWrite
		}
		if err == nil {
			err = s.CloseWrite()
		}
		written <- err
	}()
	got, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes arrived, %v; want %d", len(got), err, len(sent))
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

func TestAStreamThatNobodyReadsFailsAtItsDeadline(t *testing.T) {
	t.Parallel()
	_, near := pair(t)
	s := stream(t, near)
	sent := make([]byte, 64<<20) // which alone may take longer than the deadline
	_ = s.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	if n, err := s.Write(sent); !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 64<<20 {
		t.Errorf("%d bytes were written, %v", n, err)
	}
}

// What is thrown away leaves the rest, and the end.
func TestAStreamDiscardsNoMoreThanItIsToldTo(t *testing.T) {
	t.Parallel()
	far, near := pair(t)
	s := stream(t, near)
	go func() {
		_, _ = far.Write([]byte("12345"))
		_, _ = far.Write([]byte("67890"))
		_ = far.CloseWrite()
	}()
	s.Discard(7)
	chunk, err := NewReader(s, nil).Next(10)
	if err != nil || string(chunk) != "890" {
		t.Errorf("left were %q, %v", chunk, err)
	}
	s.Discard(1000) // ends with the stream
}

// The socket that is detached is the one that was accepted, open, and nobody waits for it.
func TestADetachedSocketIsTheSameAndOpen(t *testing.T) {
	t.Parallel()
	far, near := pair(t)
	fd, err := Take(near)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStream(loop.Next(), fd)
	if err != nil {
		t.Fatal(err)
	}
	peer, own := s.Addresses()
	if peer != netip.MustParseAddrPort(far.LocalAddr().String()) || own != netip.MustParseAddrPort(far.RemoteAddr().String()) {
		t.Errorf("the connection is said to be from %s to %s", peer, own)
	}
	if got := s.Detach(); got != fd {
		t.Errorf("detached was %d, want %d", got, fd)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a Stream whose socket is detached writes, %v", err)
	}
	if _, err := unix.Write(fd, []byte("still open")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 10)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "still open" {
		t.Errorf("heard %q, %v", got, err)
	}
	_ = unix.Close(fd)
}

// A dial tells a backend that refuses from one that says nothing, and ends with its context.
func TestDialTellsWhyItFails(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := netip.MustParseAddrPort(ln.Addr().String())
	s, err := Dial(t.Context(), up, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	_ = ln.Close()
	var network net.Error
	if _, err := Dial(t.Context(), up, time.Second); !errors.Is(err, unix.ECONNREFUSED) || errors.As(err, &network) && network.Timeout() {
		t.Errorf("a backend that refuses: %v", err)
	}

	silent := fullListener(t)
	began := time.Now()
	if _, err := Dial(t.Context(), silent, 30*time.Millisecond); !errors.As(err, &network) || !network.Timeout() {
		t.Errorf("a backend that says nothing: %v", err)
	}
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Errorf("a backend that says nothing was given up after %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := Dial(ctx, silent, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("a dial whose context ended: %v", err)
	}
}

// fullListener is an address at which nobody accepts, and no connection is taken any more.
func fullListener(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := AddressOf(at)
	for range 16 {
		client, pending, err := Connect(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(client) })
		if pending {
			return address
		}
	}
	t.Fatal("the listener takes any number of connections")
	return netip.AddrPort{}
}

// Nobody waits for a new connection to have room, which it has.
func TestANewStreamWakesNobody(t *testing.T) {
	_, b := pair(t)
	s := stream(t, b)
	loop.Settle()
	loop.Settle()
	if n := len(s.changed); n != 0 {
		t.Error("whoever waits for the first bytes looks for them before they come")
	}
}

// Whoever waits for bytes may wait for something else, too, which may have happened before.
func TestAWaitForBytesIsInterrupted(t *testing.T) {
	_, b := pair(t)
	s := stream(t, b)
	_ = s.SetReadDeadline(time.Now().Add(10 * time.Second))
	for name, wait := range map[string]func(<-chan struct{}) error{
		"to read": s.WaitReadable,
		"to go":   func(interrupt <-chan struct{}) error { return s.WaitGone(false, interrupt) },
	} {
		interrupt, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- wait(interrupt) }()
		close(interrupt)
		if err := <-ended; !errors.Is(err, ErrInterrupted) {
			t.Errorf("waiting %s: %v, want %v", name, err, ErrInterrupted)
		}
	}
}
