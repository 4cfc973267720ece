package wake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// lookupTime bounds the lookup of the operator's name, which in a cluster takes
// a millisecond or two.
const lookupTime = 200 * time.Millisecond

// dialer connects to the operator by name. Where the name can't be resolved it uses the last
// addresses: a Service keeps its addresses, and with a node half of the cluster's DNS may be
// gone. A single lookup makes several queries, each of which may go to the half that is gone.
type dialer struct {
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	mu        sync.Mutex
	lastAddrs []netip.Addr
}

func newDialer() *dialer {
	return &dialer{lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}}
}

// dial tries one address after the other, within Timeout in all.
func (d *dialer) dial(address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's address: %w", err)
	}
	addrs, err := d.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, addr := range addrs {
		deadline, _ := ctx.Deadline()
		each := net.Dialer{Timeout: time.Until(deadline) / time.Duration(len(addrs)-i)}
		conn, err := each.DialContext(ctx, "tcp", net.JoinHostPort(addr.Unmap().String(), port))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// addresses are a name's addresses, or the last ones that were resolved.
func (d *dialer) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	addrs, err := d.lookup(ctx, host)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && len(addrs) > 0 {
		d.lastAddrs = addrs
	}
	if len(d.lastAddrs) == 0 {
		return nil, fmt.Errorf("looking up the operator: %w", err)
	}
	return d.lastAddrs, nil
}
