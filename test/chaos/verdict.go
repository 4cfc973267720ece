package chaos

import (
	"net/netip"
	"slices"
	"time"
)

// Outage is a part of players' ways that is broken for a while. What is on
// nobody's way, such as the operator, has none.
type Outage struct {
	// Fault is the number of the fault that makes it.
	Fault int
	// Addr is a resolver pod's address; Node a node's number. One of them is set.
	Addr netip.Addr
	Node int
	// UDPOnly is an outage in which TCP is late and loses nothing.
	UDPOnly  bool
	From, To time.Time
}

// Session is what is known of one visit when it is over.
type Session struct {
	ID      int
	Service string
	Network string
	// Dialed is when the player asked for a connection, Ended when it left or
	// had to.
	Dialed, Ended time.Time
	// Hops are the pods that its packets went to: those that kube-proxy chose,
	// by the node's connection table, and those that replies told of.
	Hops []netip.Addr
	// Loss says what was lost; empty if nothing was.
	Loss string
}

// excuse gives the outage that broke the session's way, or nil: then its way
// was whole all the time. A session of which no hop is known has a whole way.
func excuse(s Session, outages []Outage, nodeOf func(netip.Addr) int) *Outage {
	for i, o := range outages {
		if o.UDPOnly && s.Network != "udp" {
			continue
		}
		if s.Ended.Before(o.From) || s.Dialed.After(o.To) {
			continue
		}
		if slices.ContainsFunc(s.Hops, func(hop netip.Addr) bool {
			return (o.Addr.IsValid() && hop == o.Addr) || (o.Node > 0 && nodeOf(hop) == o.Node)
		}) {
			return &outages[i]
		}
	}
	return nil
}
