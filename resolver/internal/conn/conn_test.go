package conn

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialled.Close(), accepted.Close() })
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

func TestReaderLendsABufferOnlyWhileThereAreBytes(t *testing.T) {
	a, b := pair(t)
	r, err := NewReader(b)
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() {
		chunk, err := r.Next(3)
		if err == nil && string(chunk) != "abc" {
			err = errors.New("got " + string(chunk))
		}
		waiting <- err
	}()
	if _, err := a.Write([]byte("abcdef")); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	if r.buf == nil {
		t.Error("there is no buffer under what was lent")
	}
	r.Done()
	chunk, err := r.Next(100)
	if err != nil || string(chunk) != "def" {
		t.Fatalf("got %q, %v", chunk, err)
	}
	r.Done()
	_ = b.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := r.Next(100); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the deadline: %v", err)
	}
	if r.buf != nil {
		t.Error("a reader that waited in vain holds a buffer")
	}
	_ = b.SetReadDeadline(time.Time{})
	_ = a.CloseWrite()
	if _, err := r.Next(100); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestReaderTellsAReset(t *testing.T) {
	a, b := pair(t)
	r, err := NewReader(b)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.SetLinger(0)
	_ = a.Close()
	if _, err := r.Next(1); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a reset is told as %v", err)
	}
}

func TestPacketsKnowBothAddresses(t *testing.T) {
	for _, host := range []string{"", "127.0.0.1", "::1"} {
		t.Run("listening on "+host, func(t *testing.T) {
			p, err := ListenPackets(t.Context(), host, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Close() }()
			for _, target := range []string{"127.0.0.1", "127.0.0.3", "::1"} {
				if host != "" && host != target {
					continue
				}
				to := netip.MustParseAddr(target)
				c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, uint16(p.Port()))))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Write([]byte("hi")); err != nil {
					t.Fatal(err)
				}
				datagram, from, got, err := p.Receive()
				if err != nil || string(datagram) != "hi" || got.Unmap() != to {
					t.Errorf("got %q to %s, %v; want hi to %s", datagram, got, err, to)
				}
				if want := c.LocalAddr().(*net.UDPAddr).AddrPort(); from.Addr() != want.Addr().Unmap() || from.Port() != want.Port() {
					t.Errorf("from %s, want %s", from, want)
				}
				p.Done()
				if err := p.Send([]byte("back"), p.Source(got), from); err != nil {
					t.Fatal(err)
				}
				_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
				buf := make([]byte, 10)
				if n, err := c.Read(buf); err != nil || string(buf[:n]) != "back" {
					t.Errorf("the client got %q, %v", buf[:n], err)
				}
				_ = c.Close()
			}
		})
	}
}

func FuzzParseDestination(f *testing.F) {
	four := unix.PktInfo4(&unix.Inet4Pktinfo{Addr: [4]byte{10, 0, 0, 1}})
	f.Add(four)
	f.Add(unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte{15: 1}}))
	f.Add(append(make([]byte, 16), four...))
	f.Add([]byte{16, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, control []byte) { parseDestination(control) })
}

func BenchmarkReceiveAndSend(b *testing.B) {
	p, err := ListenPackets(b.Context(), "127.0.0.1", 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.Port()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, 200)
	var source []byte
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		datagram, from, to, err := p.Receive()
		if err != nil {
			b.Fatal(err)
		}
		if source == nil {
			source = p.Source(to)
		}
		if err := p.Send(datagram, source, from); err != nil {
			b.Fatal(err)
		}
		p.Done()
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAPartOfABudgetTakesFromBoth(t *testing.T) {
	all := NewBudget(100)
	part, other := all.Part(60), all.Part(60)
	if got := part.Some(80); got != 60 {
		t.Errorf("of a part of 60 one gets %d", got)
	}
	if got := other.Some(80); got != 40 || other.Used() != 40 {
		t.Errorf("where 40 are left one gets %d, and %d are used of the part", got, other.Used())
	}
	if part.All(1) || other.All(1) || all.Used() != 100 || other.Used() != 40 {
		t.Errorf("%d are used where none is left, and %d of the part", all.Used(), other.Used())
	}
	part.Give(60)
	if !part.All(50) || all.Used() != 90 {
		t.Errorf("%d are used, want 90", all.Used())
	}
	other.Force(100)
	if all.Used() != 190 || other.Used() != 140 {
		t.Errorf("%d and %d are used after all, want 190 and 140", all.Used(), other.Used())
	}
}
