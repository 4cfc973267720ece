// Package query asks a backend to describe itself, or a client's question, over a connection of
// its own. It keeps nothing.
package query

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	proxyproto "github.com/pires/go-proxyproto"

	"dormouse.dev/dormouse/resolver/internal/route"
)

// Timeout bounds a backend's answer, without the connecting.
const Timeout = time.Second

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// Backend connects to a route's backend within the timeout, and calls question with the
// connection. The question has the timeout or Timeout, whichever is longer. The connection begins
// with a header of the PROXY protocol where the route's backends want one.
func Backend(ctx context.Context, r *route.Route, network route.Network, address netip.AddrPort, timeout time.Duration, question func(net.Conn) error) error {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(ctx, string(network), address.String())
	if err != nil {
		return fmt.Errorf("query backend %s: %w", address, err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(max(timeout, Timeout)))
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })()
	if network == route.TCP && r.Proxy.Send {
		err = introduce(c)
	}
	if err == nil {
		err = question(c)
	}
	if err != nil {
		return fmt.Errorf("query backend %s: %w", address, err)
	}
	return nil
}

// introduce sends the PROXY protocol's header of a connection of our own, which names the
// addresses of its socket. The protocol has the command LOCAL for that, without an address, on
// which Velocity and older versions of Paper and BungeeCord close the connection.
func introduce(c net.Conn) error {
	header, err := proxyproto.HeaderProxyFromAddrs(2, c.LocalAddr(), c.RemoteAddr()).Format()
	if err != nil {
		return fmt.Errorf("write the PROXY header: %w", err)
	}
	_, err = c.Write(header)
	return err
}
