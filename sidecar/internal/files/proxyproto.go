package files

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	proxyproto "github.com/pires/go-proxyproto"
)

// introduced is a connection whose header said where its client is.
type introduced struct {
	net.Conn

	// reader has what came with the header.
	reader *bufio.Reader
	client net.Addr
}

// Read implements net.Conn.
func (c *introduced) Read(b []byte) (int, error) { return c.reader.Read(b) }

// RemoteAddr implements net.Conn: it is the client's.
func (c *introduced) RemoteAddr() net.Addr { return c.client }

// errNoProxyHeader is that a connection began with something else than a header that names a client.
var errNoProxyHeader = errors.New("no header of the PROXY protocol v2 with a TCP client's address")

// introduce finds out where a connection's client is, and whether such a client may connect; nil: it
// may not.
func (s *Server) introduce(c net.Conn) net.Conn {
	if s.opts.ProxyProtocol {
		// A resolver's header comes at once: those that say nothing make room for it.
		waits, why := s.introductions.admit(netip.Prefix{}, false, func() { _ = c.Close() })
		if why != "" {
			s.metrics.refused(why)
		}
		client, local, err := readHeader(c, s.introductionTimeout)
		switch ended := s.introductions.leave(waits); {
		case ended:
			return nil
		case err != nil:
			s.metrics.refused(refusedProxy)
			return nil
		case local:
			// Whoever passes connections on looks whether the port is open.
			return nil
		}
		c = client
	}
	if len(s.opts.Allow) > 0 {
		client, err := netip.ParseAddrPort(c.RemoteAddr().String())
		address := client.Addr().Unmap().WithZone("")
		if err != nil || !slices.ContainsFunc(s.opts.Allow, func(n netip.Prefix) bool { return n.Contains(address) }) {
			s.metrics.refused(refusedNetwork)
			return nil
		}
	}
	return c
}

// readHeader reads the header with which a connection begins. local: whoever sent it connected for
// itself.
func readHeader(c net.Conn, timeout time.Duration) (client *introduced, local bool, err error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, false, err //nolint:wrapcheck // it only counts
	}
	reader := bufio.NewReader(c)
	header, err := proxyproto.Read(reader)
	switch {
	case err != nil:
		return nil, false, err //nolint:wrapcheck // it only counts
	case header.Version != 2:
		return nil, false, errNoProxyHeader
	case header.Command.IsLocal():
		return nil, true, nil
	}
	source, _, ok := header.TCPAddrs()
	if !ok {
		return nil, false, errNoProxyHeader
	}
	return &introduced{Conn: c, reader: reader, client: source}, false, nil
}
