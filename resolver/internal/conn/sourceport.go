package conn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/api/wellknown"
)

// The kernel gives each UDP socket a port of its own, of some 28,000. But a connected socket is
// identified by its peer, too. So the source ports are chosen here, and sockets that are
// connected to different backends may share one.

const (
	firstPort, lastPort = 1024, 1<<16 - 1
	// sparePorts is how many of the kernel's ephemeral ports are left to whatever else the
	// process sends over UDP.
	sparePorts = 1024
	// takenTries is how many ports in use elsewhere are tried before giving up.
	takenTries = 64
)

// ErrNoPort means that every source port has a socket that is connected to the backend already.
var ErrNoPort = errors.New("no source port is left for this server")

// SourcePort is a port from which a socket is connected to a backend. The zero value is none.
type SourcePort struct {
	of   *serverPorts
	port uint16
}

// Server is the backend that the socket is connected to, and stays so once the port is free.
// It is invalid where there was none.
func (p *SourcePort) Server() netip.AddrPort {
	if p.of == nil {
		return netip.AddrPort{}
	}
	return p.of.server
}

// sourcePorts are the source ports towards all backends. A port is used once for a backend.
type sourcePorts struct {
	// rings are the ports to choose from. Ports that services may be served at come last: no
	// socket can be opened to serve one in the usual way while it is a source port.
	rings [2][]uint16

	mu      sync.Mutex
	servers map[netip.AddrPort]*serverPorts
	begun   int
	// listening are ports that clients send to, and listens counts them by ring.
	listening map[uint16]struct{}
	listens   [2]int
}

// serverPorts are the ports in use towards one backend. Each ring is gone round, so that a port
// is used again as late as possible: what a backend still sends to the last client must not get
// to another.
type serverPorts struct {
	server netip.AddrPort
	used   map[uint16]struct{}
	next   [2]int
	// taken counts those of each ring. A ring of which every port is taken, or listened on, is
	// not searched in vain.
	taken [2]int
}

// ringOf is the ring that a port belongs to.
func ringOf(port int) int {
	if port >= wellknown.MinResolverPort && port <= wellknown.MaxResolverPort {
		return 1
	}
	return 0
}

var sources = newSourcePorts(lastOf("net/ipv4/ip_unprivileged_port_start", firstPort), lastOf("net/ipv4/ip_local_port_range", lastPort))

// lastOf is the last number of a kernel setting.
func lastOf(name string, otherwise int) int {
	text, err := os.ReadFile("/proc/sys/" + name)
	fields := strings.Fields(string(text))
	if err != nil || len(fields) == 0 {
		return otherwise
	}
	n, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil || n <= 0 || n > lastPort {
		return otherwise
	}
	return n
}

// newSourcePorts has the ports from first on, except for some of those up to given, from which
// the kernel chooses.
func newSourcePorts(first, given int) *sourcePorts {
	// A process that replaces another at the same address begins elsewhere, or a backend could
	// take its clients for the other's.
	s := &sourcePorts{servers: map[netip.AddrPort]*serverPorts{}, listening: map[uint16]struct{}{}, begun: rand.IntN(lastPort)} //nolint:gosec // nobody is kept from guessing
	for port := max(first, firstPort); port <= lastPort; port++ {
		if port <= given-sparePorts || port > given {
			s.rings[ringOf(port)] = append(s.rings[ringOf(port)], uint16(port))
		}
	}
	return s
}

// take returns a port without a socket that is connected to the backend.
func (s *sourcePorts) take(server netip.AddrPort) (SourcePort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := s.servers[server]
	if ports == nil {
		// Each backend begins at another port. Otherwise many sockets would share one, and the
		// kernel searches all of those for each datagram.
		s.begun += 7919
		ports = &serverPorts{server: server, used: map[uint16]struct{}{}, next: [2]int{s.begun, s.begun}}
		s.servers[server] = ports
	}
	for i, ring := range s.rings {
		if ports.taken[i]+s.listens[i] >= len(ring) {
			continue
		}
		for range ring {
			port := ring[ports.next[i]%len(ring)]
			ports.next[i]++
			if _, used := ports.used[port]; used {
				continue
			}
			if _, listening := s.listening[port]; listening {
				continue
			}
			ports.used[port] = struct{}{}
			ports.taken[i]++
			return SourcePort{ports, port}, nil
		}
	}
	return SourcePort{}, fmt.Errorf("%s: %w", server, ErrNoPort)
}

// shares reports whether a port is a source port towards some backend, and can be served all
// the same.
func (s *sourcePorts) shares(port int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, listening := s.listening[uint16(port)]; listening { //nolint:gosec // a port
		return false
	}
	for _, ports := range s.servers {
		if _, used := ports.used[uint16(port)]; used { //nolint:gosec // a port
			return true
		}
	}
	return false
}

// listen keeps a port that clients send to from being a source port, until it is closed.
func (s *sourcePorts) listen(port int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.listening[uint16(port)]; !is { //nolint:gosec // a port
		s.listening[uint16(port)] = struct{}{} //nolint:gosec // a port
		s.listens[ringOf(port)]++
	}
}

func (s *sourcePorts) closed(port int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, is := s.listening[uint16(port)]; is { //nolint:gosec // a port
		delete(s.listening, uint16(port)) //nolint:gosec // a port
		s.listens[ringOf(port)]--
	}
}

// Free gives the port back, once its socket is closed.
func (p *SourcePort) Free() {
	if p.port == 0 {
		return
	}
	sources.mu.Lock()
	defer sources.mu.Unlock()
	delete(p.of.used, p.port)
	p.of.taken[ringOf(int(p.port))]--
	if len(p.of.used) == 0 {
		delete(sources.servers, p.of.server)
	}
	p.port = 0
}

var udpDialer = net.Dialer{Control: shared}

// DialUDP opens a socket to a backend. The source port is to be freed when the socket is
// closed.
func DialUDP(server netip.AddrPort) (*net.UDPConn, SourcePort, error) {
	network, local := "udp6", netip.IPv6Unspecified()
	if server.Addr().Unmap().Is4() {
		network, local = "udp4", netip.IPv4Unspecified()
	}
	for range takenTries {
		from, err := sources.take(server)
		if err != nil {
			return nil, from, err
		}
		c, err := udpDialer.DialUDP(context.Background(), network, netip.AddrPortFrom(local, from.port), server)
		if err == nil {
			return c, from, nil
		}
		from.Free()
		// The port is in use elsewhere, or this process may not have it.
		var call *os.SyscallError
		if !errors.As(err, &call) || call.Syscall != "bind" {
			return nil, from, fmt.Errorf("opening a socket to %s: %w", server, err)
		}
	}
	return nil, SourcePort{}, fmt.Errorf("%s: %w", server, ErrNoPort)
}

// shared lets sockets share a port.
func shared(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	})
	return errors.Join(err, failed)
}

// Local reports whether an error of opening a socket has its cause on this host: no descriptor,
// port or memory is left. It implies nothing about the backend.
func Local(err error) bool {
	for _, errno := range []error{ErrNoPort, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EADDRNOTAVAIL} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
