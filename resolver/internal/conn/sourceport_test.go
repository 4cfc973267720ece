package conn

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/api/wellknown"
)

var lobby, arena = netip.MustParseAddrPort("10.244.1.9:7777"), netip.MustParseAddrPort("10.244.1.10:7777")

// Each server has all ports, each once; those that services may be served at come last,
// and what the kernel gives out itself keeps some.
func TestEachServerHasAllSourcePorts(t *testing.T) {
	t.Parallel()
	const first, given = 1024, 60_999
	s := newSourcePorts(first, given)
	s.listen(2000)
	want := 1<<16 - first - sparePorts - 1
	for _, server := range []netip.AddrPort{lobby, arena} {
		seen := map[uint16]bool{}
		resolverPorts := false
		for range want {
			p, err := s.take(server)
			if err != nil {
				t.Fatalf("after %d of %d ports: %v", len(seen), want, err)
			}
			is := p.port >= wellknown.MinResolverPort && p.port <= wellknown.MaxResolverPort
			switch {
			case seen[p.port], p.port < first, p.port == 2000, p.port > given-sparePorts && p.port <= given:
				t.Fatalf("%s: port %d is given", server, p.port)
			case resolverPorts && !is:
				t.Fatalf("%s: port %d comes after those that services may be served at", server, p.port)
			}
			resolverPorts = is
			seen[p.port] = true
		}
		if p, err := s.take(server); !errors.Is(err, ErrNoPort) || !Local(err) {
			t.Errorf("%s: after all ports: %v, %v", server, p, err)
		}
	}
}

// A server may still send to a client that is gone: the next one has another port.
func TestASourcePortIsUsedAgainLate(t *testing.T) {
	t.Parallel()
	var last []uint16
	for range 1000 {
		_, from, err := dial(t, "127.0.0.1:9")
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(last, from.port) {
			t.Fatalf("port %d is used again after %d others", from.port, len(last))
		}
		last = append(last, from.port)
		from.Free()
		from.Free() // which does nothing
	}
}

// A resolver that is started again has the same address, and its servers may still know
// the clients of the one before by its ports.
func TestAnotherProcessBeginsWithOtherPorts(t *testing.T) {
	t.Parallel()
	first := map[uint16]bool{}
	for range 8 {
		p, err := newSourcePorts(1024, 60_999).take(lobby)
		if err != nil {
			t.Fatal(err)
		}
		first[p.port] = true
	}
	// Two may begin with the same by chance.
	if len(first) < 6 {
		t.Errorf("8 processes begin with %d ports", len(first))
	}
}

func dial(t *testing.T, server string) (*net.UDPConn, SourcePort, error) {
	t.Helper()
	c, from, err := DialUDP(netip.MustParseAddrPort(server))
	if err == nil {
		_ = c.Close()
	}
	return c, from, err
}

// A port that is a source port can be served at, and one that is served at is no
// source port from then on; nor can two be served at one.
func TestAPortThatIsServedAtIsNoSourcePort(t *testing.T) {
	game, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = game.Close() }()
	c, from, err := DialUDP(game.LocalAddr().(*net.UDPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(); from.Free() }()
	p, err := ListenPackets("", int(from.port))
	if err != nil {
		t.Fatalf("a source port can't be served at: %v", err)
	}
	defer func() { p.Closing(); _ = unix.Close(p.FD()) }()
	if _, err := ListenPackets("", int(from.port)); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a port is served at twice: %v", err)
	}
	sources.mu.Lock()
	_, listening := sources.listening[from.port]
	sources.mu.Unlock()
	if !listening {
		t.Error("it may be a source port still")
	}
	// What the server says gets to the one that is connected.
	if _, err := game.WriteTo([]byte("hello"), c.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 10)); n != 5 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A full buffer makes nobody wait who may not.
func TestWriteNowDoesNotWait(t *testing.T) {
	t.Parallel()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(ends[1]) }()
	w, err := NewWriter(descriptor(ends[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(ends[0]) }()
	for range 100_000 {
		if err = w.WriteNow(make([]byte, 1000)); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Errorf("with nobody who reads: %v, want %v", err, unix.EAGAIN)
	}
}

// descriptor is a syscall.Conn and RawConn that can't be waited for.
type descriptor int

func (d descriptor) SyscallConn() (syscall.RawConn, error) { return d, nil }

func (d descriptor) Control(f func(fd uintptr)) error { f(uintptr(d)); return nil }

func (descriptor) Read(func(fd uintptr) bool) error { return errors.ErrUnsupported }

func (descriptor) Write(func(fd uintptr) bool) error { return errors.ErrUnsupported }
