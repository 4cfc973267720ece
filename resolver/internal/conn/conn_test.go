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

	"dormouse.dev/dormouse/resolver/internal/loop"
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

// stream makes a Stream of a connection, which it is from then on.
func stream(t testing.TB, c *net.TCPConn) *Stream {
	t.Helper()
	fd, err := Take(c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStream(loop.Next(), fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestReaderLendsABufferOnlyWhileThereAreBytes(t *testing.T) {
	a, b := pair(t)
	in := stream(t, b)
	r := NewReader(in, nil)
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
	_ = in.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := r.Next(100); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the deadline: %v", err)
	}
	if r.buf != nil {
		t.Error("a reader that waited in vain holds a buffer")
	}
	_ = in.SetReadDeadline(time.Time{})
	_ = a.CloseWrite()
	if _, err := r.Next(100); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// What has come is read also after the deadline, and what hasn't is not waited for.
func TestReaderTakesWhatHasCome(t *testing.T) {
	a, b := pair(t)
	in := stream(t, b)
	r := NewReader(in, nil)
	if _, err := r.NextNow(10); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("reading nothing: %v", err)
	}
	if _, err := a.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if err := in.WaitReadable(nil); err != nil {
		t.Fatal(err)
	}
	_ = in.SetReadDeadline(time.Now().Add(-time.Second))
	if got, err := r.NextNow(10); err != nil || string(got) != "late" {
		t.Fatalf("got %q, %v", got, err)
	}
	r.Done()
	_ = a.CloseWrite()
	_ = in.SetReadDeadline(time.Time{})
	if err := in.WaitReadable(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.NextNow(10); !errors.Is(err, io.EOF) {
		t.Fatalf("reading the end: %v", err)
	}
}

func TestReaderTellsAReset(t *testing.T) {
	a, b := pair(t)
	in := stream(t, b)
	r := NewReader(in, nil)
	_ = a.SetLinger(0)
	_ = a.Close()
	if _, err := r.Next(1); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("a reset is told as %v", err)
	}
}

// receive waits for datagrams.
func receive(t testing.TB, p *Packets) *Batch {
	t.Helper()
	for b := NewBatch(); ; {
		switch errno := p.Receive(b); errno {
		case 0:
			return b
		case unix.EAGAIN:
			if n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.FD()), Events: unix.POLLIN}}, 5000); n != 1 {
				t.Fatalf("nothing comes: %v", err)
			}
		default:
			t.Fatal(errno)
		}
	}
}

func closePackets(p *Packets) {
	p.Closing()
	_ = unix.Close(p.FD())
}

func TestNothingIsSentFromAClosedPort(t *testing.T) {
	p, err := ListenPackets("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	closePackets(p)
	if err := p.Send([]byte("late"), nil, netip.MustParseAddrPort("127.0.0.1:9")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("sending says %v", err)
	}
}

// One call passes on what goes to several clients, each with its own size, and what
// one of them can't be sent keeps nothing from the others.
func TestRepliesGoToEachClient(t *testing.T) {
	p, err := ListenPackets("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closePackets(p)
	r := NewReplies()
	var clients []*net.UDPConn
	want := 0
	for i := range 5 {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		clients = append(clients, c)
		to := c.LocalAddr().(*net.UDPAddr).AddrPort()
		if i == 2 {
			to = netip.AddrPortFrom(to.Addr(), 0) // there is no such port
		} else {
			want += i
		}
		replier := p.Replier(nil, to)
		if r.Add(copy(r.Room(), "abcde"[:i]), &replier) {
			t.Fatal("five are too many")
		}
	}
	if sent, bytes, lost := r.Send(p.FD()); sent != 4 || bytes != want || lost != 1 {
		t.Errorf("%d replies of %d bytes were sent, want 4 of %d", sent, bytes, want)
	}
	for i, c := range clients {
		if i == 2 {
			continue
		}
		buf := make([]byte, 10)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "abcde"[:i] {
			t.Errorf("client %d got %q, %v", i, buf[:n], err)
		}
	}
}

func TestPacketsKnowBothAddresses(t *testing.T) {
	for _, host := range []string{"", "127.0.0.1", "::1"} {
		t.Run("listening on "+host, func(t *testing.T) {
			p, err := ListenPackets(host, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer closePackets(p)
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
				batch := receive(t, p)
				datagram, from, got := batch.Datagram(0)
				if batch.Len() != 1 || string(datagram) != "hi" || got.Unmap() != to {
					t.Errorf("got %q to %s, and %d datagrams; want hi to %s", datagram, got, batch.Len(), to)
				}
				if want := c.LocalAddr().(*net.UDPAddr).AddrPort(); from.Addr() != want.Addr().Unmap() || from.Port() != want.Port() {
					t.Errorf("from %s, want %s", from, want)
				}
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
	p, err := ListenPackets("127.0.0.1", 0)
	if err != nil {
		b.Fatal(err)
	}
	defer closePackets(p)
	c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.Port()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, 200)
	var replier Replier
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		batch := receive(b, p)
		datagram, from, to := batch.Datagram(0)
		if replier.packets == nil {
			replier = p.Replier(p.Source(to), from)
		}
		if err := replier.Send(datagram); err != nil {
			b.Fatal(err)
		}
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

func TestASharerThatIsFloodedLeavesRoomForOthers(t *testing.T) {
	all := NewBudget(900)
	flooded, other := all.Share(), all.Share()
	source := flooded.Part(850)
	if got := source.Some(1000); got != 800 || flooded.Used() != 800 || all.Used() != 800 {
		t.Errorf("of 900 one gets %d, want 800", got)
	}
	if source.All(1) || !flooded.Full() || !source.Full() || source.Some(1) != 0 || source.Used() != 800 {
		t.Errorf("%d of its share of 800 are used", source.Used())
	}
	if other.Full() || !other.All(50) || other.Some(1000) != 39 || !other.Full() || all.Full() {
		t.Errorf("another has %d of 100", other.Used())
	}
	// What is given back is there for who has little, and never more than all.
	source.Give(5)
	if flooded.All(1) || other.All(20) || !other.All(10) || other.Used() != 99 || all.Used() != 894 {
		t.Errorf("%d are used, and %d of them by who has little", all.Used(), other.Used())
	}
}

// A port with large datagrams holds up the others of a batch for less, and goes on so
// when others have used the batch meanwhile.
func TestAPortWithLargeDatagramsReceivesFewAtOnce(t *testing.T) {
	batch := NewBatch()
	open := func() (p *Packets, send func(size, times int)) {
		t.Helper()
		p, err := ListenPackets("127.0.0.1", 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closePackets(p) })
		c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.Port()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return p, func(size, times int) {
			t.Helper()
			for range times {
				if _, err := c.Write(make([]byte, size)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	large, sendLarge := open()
	small, sendSmall := open()
	const times = fewDatagrams + 1
	for _, step := range []struct {
		port *Packets
		send func(size, times int)
		size int
		want int
	}{
		{large, sendLarge, 40_000, times},
		{small, sendSmall, 10, times},
		{large, sendLarge, 40_000, fewDatagrams},
		{large, func(int, int) {}, 0, 1}, // the rest of it
		{large, sendLarge, 10, times},
	} {
		// What is sent over loopback is there at once.
		step.send(step.size, times)
		if errno := step.port.Receive(batch); errno != 0 {
			t.Fatal(errno)
		}
		if batch.Len() != step.want {
			t.Errorf("%d datagrams of %d bytes were received at once, want %d", batch.Len(), step.size, step.want)
		}
	}
}
