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

	"dormouse.dev/dormouse/api/v1alpha1"
)

// The kernel gives each UDP socket a port of its own, of some 28,000. What a socket
// is told apart by is more: where it is connected to, too. So the ports are chosen
// here, and those of different servers' sockets may be the same.

const (
	firstPort, lastPort = 1024, 1<<16 - 1
	// sparePorts are left of those that the kernel gives out, for whatever else the
	// process asks over UDP.
	sparePorts = 1024
	// takenTries is how many ports may be somebody else's before it is given up.
	takenTries = 64
)

// ErrNoPort says that each port has a socket that is connected to the server already.
var ErrNoPort = errors.New("no source port is left for this server")

// SourcePort is a port from which a socket is connected to a server. The zero value is
// none.
type SourcePort struct {
	server netip.AddrPort
	port   uint16
}

// sourcePorts are those of all servers. A port is in use for a server once.
type sourcePorts struct {
	// rings are what is to be had. Ports that services may be served at come last: no
	// socket can be opened to serve one in the usual way while it is a source port.
	rings [2][]uint16

	mu      sync.Mutex
	servers map[netip.AddrPort]*serverPorts
	begun   int
	// listening are ports that clients send to, and listens counts them by ring.
	listening map[uint16]struct{}
	listens   [2]int
}

// serverPorts are a server's. Each ring is gone round, so that a port is used again as
// late as can be: what a server still sends to the last client must not get to another.
type serverPorts struct {
	used map[uint16]struct{}
	next [2]int
	// taken counts those of each ring. A ring of which all is taken, or
	// listened on, is not gone round in vain.
	taken [2]int
}

// ringOf is the ring that a port is of.
func ringOf(port int) int {
	if port >= v1alpha1.MinResolverPort && port <= v1alpha1.MaxResolverPort {
		return 1
	}
	return 0
}

var sources = newSourcePorts(lastOf("net/ipv4/ip_unprivileged_port_start", firstPort), lastOf("net/ipv4/ip_local_port_range", lastPort))

// lastOf is the last number of a setting of the kernel's.
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

// newSourcePorts has the ports from first on, but for some of those up to given, which
// the kernel gives out.
func newSourcePorts(first, given int) *sourcePorts {
	// A process that takes another's place at the same address begins elsewhere, too: its
	// clients would be taken for the other's, whom a server may still know.
	s := &sourcePorts{servers: map[netip.AddrPort]*serverPorts{}, listening: map[uint16]struct{}{}, begun: rand.IntN(lastPort)} //nolint:gosec // nobody is kept from guessing
	for port := max(first, firstPort); port <= lastPort; port++ {
		if port <= given-sparePorts || port > given {
			s.rings[ringOf(port)] = append(s.rings[ringOf(port)], uint16(port))
		}
	}
	return s
}

// take gives a port that has no socket that is connected to the server.
func (s *sourcePorts) take(server netip.AddrPort) (SourcePort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := s.servers[server]
	if ports == nil {
		// Each begins elsewhere. Or many sockets would have the same port, and the kernel
		// looks through all of those for each datagram.
		s.begun += 7919
		ports = &serverPorts{used: map[uint16]struct{}{}, next: [2]int{s.begun, s.begun}}
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
			return SourcePort{server, port}, nil
		}
	}
	return SourcePort{}, fmt.Errorf("%s: %w", server, ErrNoPort)
}

// shares reports whether a port is some server's source port, and can be served at all the
// same, which it isn't.
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

// listen has a port that clients send to be no source port, until it is closed.
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
	if ports := sources.servers[p.server]; ports != nil {
		delete(ports.used, p.port)
		ports.taken[ringOf(int(p.port))]--
		if len(ports.used) == 0 {
			delete(sources.servers, p.server)
		}
	}
	p.port = 0
}

// DialUDP opens a socket to a server, from a port that is to be freed when it is closed.
func DialUDP(server netip.AddrPort) (*net.UDPConn, SourcePort, error) {
	network := "udp6"
	if server.Addr().Unmap().Is4() {
		network = "udp4"
	}
	for range takenTries {
		from, err := sources.take(server)
		if err != nil {
			return nil, from, err
		}
		d := net.Dialer{LocalAddr: &net.UDPAddr{Port: int(from.port)}, Control: shared}
		c, err := d.DialContext(context.Background(), network, server.String())
		if err == nil {
			return c.(*net.UDPConn), from, nil
		}
		from.Free()
		// The port is somebody else's, or not ours to have.
		var call *os.SyscallError
		if !errors.As(err, &call) || call.Syscall != "bind" {
			return nil, from, fmt.Errorf("opening a socket to %s: %w", server, err)
		}
	}
	return nil, SourcePort{}, fmt.Errorf("%s: %w", server, ErrNoPort)
}

// shared lets sockets have the same port.
func shared(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	})
	return errors.Join(err, failed)
}

// Local reports whether an error of opening a socket is of this host's making: it has
// none left, no port for it, or no memory. It tells nothing of the server.
func Local(err error) bool {
	for _, errno := range []error{ErrNoPort, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EADDRNOTAVAIL} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
