package dataplane

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	proxyproto "github.com/pires/go-proxyproto"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// headerBuffer is for reading a header, which may be longer. It bounds what is
// read of the bytes behind it.
const headerBuffer = 256

// endpoints is where a TCP client is, and what it connected to: what its socket
// says, or a load balancer's header.
type endpoints struct {
	source, destination netip.AddrPort
	// local says that the load balancer itself connected, to see whether somebody
	// is there: it is no client and wakes nothing.
	local bool
}

func endpointOf(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		at := t.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}

// introduce finds out where a client is; false: it came from where connections
// begin with a header, and has none. One that ends before it says anything is a
// load balancer's look whether the port is open.
func (p *servedPort) introduce(h *heldTCP, proxy *route.Proxy) bool {
	if !proxy.Trusts(h.source.Addr()) {
		return true
	}
	due := h.headDue
	if due.IsZero() {
		due = time.Now().Add(p.headTime())
	}
	_ = h.conn.SetReadDeadline(due)
	stream := &heldStream{held: h}
	reader := bufio.NewReaderSize(stream, headerBuffer)
	header, err := proxyproto.Read(reader)
	if err != nil {
		switch {
		case errors.Is(stream.err, conn.ErrNoRoom):
			p.refuse(h.line, proto.TooManyBytes)
		case stream.read > 0 || errors.Is(stream.err, os.ErrDeadlineExceeded):
			p.refuse(h.line, proto.NoProxyHeader)
		}
		h.budget.Give(stream.read)
		return false
	}
	_ = h.conn.SetReadDeadline(h.headDue)
	rest, _ := reader.Peek(reader.Buffered())
	h.sent = append(h.sent, rest...)
	h.budget.Give(stream.read - len(rest))
	if header.Command.IsLocal() {
		h.local = true
	} else if source, destination, ok := header.TCPAddrs(); ok {
		h.source, h.destination = endpointOf(source), endpointOf(destination)
		h.line.From(h.source)
	}
	return true
}

// heldStream reads a client as an io.Reader. What it reads is charged to the
// client's budget.
type heldStream struct {
	held *heldTCP
	read int
	err  error
}

// Read implements io.Reader.
func (s *heldStream) Read(b []byte) (int, error) {
	chunk, err := s.held.reader.Next(len(b))
	if err != nil {
		s.err = err
		return 0, err
	}
	defer s.held.reader.Done()
	s.read += len(chunk)
	return copy(b, chunk), nil
}

// announcement is what a connection to a server begins with, before the client's
// own bytes; nil where the server wants none.
func (h *heldTCP) announcement() ([]byte, error) {
	if !h.announced {
		return nil, nil
	}
	if h.local {
		return localHeader, nil
	}
	return proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(h.source), net.TCPAddrFromAddrPort(h.destination)).Format()
}

// localHeader says that the resolver itself connects, and no client. It has no
// address, which is all that could be wrong with one.
var localHeader, _ = (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}).Format()
