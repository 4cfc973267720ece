package tcp

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
)

// headerBuffer is for reading a header, which may be longer. It bounds how much is read beyond
// the header.
const headerBuffer = 256

// localHeader is the header of a connection that is no client's. It has no address, the only part
// that could be invalid.
var localHeader, _ = (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}).Format()

// endpoints is a TCP client's address and the one that it connected to, from its socket or from
// a load balancer's header. The second is looked up when it is first needed.
type endpoints struct {
	source, destination netip.AddrPort
	// local is set where the load balancer connected for itself, as a health check: it is no
	// client and wakes nothing.
	local bool
}

func endpointOf(a *net.TCPAddr) netip.AddrPort {
	at := a.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// introduce finds out a client's address from the header with which a trusted connection has to
// begin; false: there is none. One that ends before it sends anything is a load balancer's check whether the port
// is open.
func (f *classifier) introduce(c *Client) bool {
	due := c.headDue
	if due.IsZero() {
		due = time.Now().Add(f.terms.HeadTime())
	}
	_ = c.conn.SetReadDeadline(due)
	stream := &heldStream{held: c}
	reader := bufio.NewReaderSize(stream, headerBuffer)
	header, err := proxyproto.Read(reader)
	if err != nil {
		switch {
		case errors.Is(stream.err, conn.ErrNoRoom):
			f.refuse(c.line, proto.TooManyBytes)
		case stream.read > 0 || errors.Is(stream.err, os.ErrDeadlineExceeded):
			f.refuse(c.line, proto.NoProxyHeader)
		}
		c.budget.Give(stream.read)
		return false
	}
	_ = c.conn.SetReadDeadline(c.headDue)
	rest, _ := reader.Peek(reader.Buffered())
	c.sent = append(c.sent, rest...)
	c.budget.Give(stream.read - len(rest))
	if header.Command.IsLocal() {
		c.local = true
	} else if source, destination, ok := header.TCPAddrs(); ok {
		c.source, c.destination = endpointOf(source), endpointOf(destination)
		c.line.From(c.source)
	}
	return true
}

// heldStream reads a client as an io.Reader. The bytes that it reads are charged to the
// client's budget.
type heldStream struct {
	held *Client
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

// announcement is the header with which a connection to a backend that wants one begins, before
// the client's own bytes.
func (c *Client) announcement() ([]byte, error) {
	if c.local {
		return localHeader, nil
	}
	if !c.destination.IsValid() {
		_, c.destination = c.conn.Addresses()
	}
	return proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(c.source), net.TCPAddrFromAddrPort(c.destination)).Format()
}
