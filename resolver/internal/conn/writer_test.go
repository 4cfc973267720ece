package conn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWriterWaitsForRoom(t *testing.T) {
	a, b := pair(t)
	w, err := NewWriter(a)
	if err != nil {
		t.Fatal(err)
	}
	// More than both sockets' buffers have room for.
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	written := make(chan error, 1)
	go func() {
		n, err := w.Write(sent)
		if err == nil && n != len(sent) {
			err = io.ErrShortWrite
		}
		written <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("other bytes came than were written")
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

func TestWriterTellsABrokenConnection(t *testing.T) {
	a, b := pair(t)
	w, err := NewWriter(a)
	if err != nil {
		t.Fatal(err)
	}
	_ = b.SetLinger(0)
	_ = b.Close()
	for err == nil {
		_, err = w.Write(make([]byte, 1000))
	}
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		t.Errorf("writing to a connection that was reset: %v", err)
	}
}

func TestWriterSendsDatagramsWhole(t *testing.T) {
	to, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = to.Close() }()
	c, err := net.DialUDP("udp", nil, to.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	w, err := NewWriter(c)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, MaxDatagram)
	for _, size := range []int{0, 1, 65507} {
		if n, err := w.Write(make([]byte, size)); n != size || err != nil {
			t.Errorf("a datagram of %d bytes: %d, %v", size, n, err)
		}
		if n, err := to.Read(buf); n != size || err != nil {
			t.Errorf("of %d bytes came %d, %v", size, n, err)
		}
	}
}
