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

// LocalHeader is the PROXY protocol's header of a connection that is no client's. It has no
// address, the only part that could be invalid.
var LocalHeader, _ = (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}).Format()

// Greeting is what our own connections to a route's backends begin with.
func Greeting(r *route.Route, network route.Network) []byte {
	if network == route.TCP && r.Proxy.Send {
		return LocalHeader
	}
	return nil
}

// Backend connects to a backend within the timeout, sends greeting, and calls question with the
// connection. The question has the timeout or Timeout, whichever is longer.
func Backend(ctx context.Context, network route.Network, address netip.AddrPort, timeout time.Duration, greeting []byte, question func(net.Conn) error) error {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(ctx, string(network), address.String())
	if err != nil {
		return fmt.Errorf("query backend %s: %w", address, err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(max(timeout, Timeout)))
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })()
	if len(greeting) > 0 {
		if _, err := c.Write(greeting); err != nil {
			return fmt.Errorf("query backend %s: %w", address, err)
		}
	}
	if err := question(c); err != nil {
		return fmt.Errorf("query backend %s: %w", address, err)
	}
	return nil
}
