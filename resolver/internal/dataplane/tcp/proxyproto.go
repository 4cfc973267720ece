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
	"dormouse.dev/dormouse/resolver/internal/query"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// headerBuffer is for reading a header, which may be longer. It bounds what is
// read of the bytes behind it.
const headerBuffer = 256

// endpoints is where a TCP client is, and what it connected to: what its socket
// says, or a load balancer's header.
type endpoints struct {
	source, destination netip.AddrPort
	// local is set where the load balancer itself connected, to see whether somebody
	// is there: it is no client and wakes nothing.
	local bool
}

func endpointOf(a *net.TCPAddr) netip.AddrPort {
	at := a.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// introduce finds out where a client is; false: it came from where connections
// begin with a header, and has none. One that ends before it says anything is a
// load balancer's look whether the port is open.
func (f *classifier) introduce(c *Client, proxy *route.Proxy) bool {
	if !proxy.Trusts(c.source.Addr()) {
		return true
	}
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

// heldStream reads a client as an io.Reader. What it reads is charged to the
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

// announcement is what a connection to a server begins with, before the client's
// own bytes; nil where the server wants none.
func (c *Client) announcement() ([]byte, error) {
	if !c.announced {
		return nil, nil
	}
	if c.local {
		return query.LocalHeader, nil
	}
	return proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(c.source), net.TCPAddrFromAddrPort(c.destination)).Format()
}
