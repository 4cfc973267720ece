package dataplane

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/route"
)

// What ICMP says of one datagram ends no session: the client keeps its source port at
// the server, or the game would see a stranger, and what it sends next arrives.
func TestNoICMPErrorEndsASession(t *testing.T) {
	if !sandboxed(t, nil) {
		return
	}
	for name, code := range map[string]int{
		"network unreachable": 0, "host unreachable": 1, "protocol unreachable": 2, "port unreachable": 3,
		"fragmentation needed": 4, "network prohibited": 9, "host prohibited": 10, "administratively prohibited": 13,
	} {
		t.Run(fmt.Sprintf("%s, code %d", name, code), func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.UDP, probed)
			server := freeAddress(t, route.UDP)
			s := listenUDP(t, server)
			r.backend(server, true)
			c := dialUDP(t, address)
			say := func(text string) {
				t.Helper()
				write(t, c, text)
				hear(t, c, "re:"+text)
			}
			say("first")
			// The loops have it once it is settled: then errors come to them.
			r.eventually("the loops have the session", func() bool {
				r.server.mu.Lock()
				defer r.server.mu.Unlock()
				return r.server.services[r.route.UID].ports[0].udp.Settled()
			})
			s.mu.Lock()
			from := slices.Collect(maps.Keys(s.from))
			s.mu.Unlock()
			for _, peer := range from {
				unreachable(t, code, peer, netip.MustParseAddrPort(server))
			}
			for i := range 5 {
				say(fmt.Sprint(i))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.from) != 1 {
				t.Errorf("the server saw the client come from %v, want one address", s.from)
			}
		})
	}
}

// unreachable tells who sent a UDP datagram over loopback that it did not arrive.
func unreachable(t *testing.T, code int, from, to netip.AddrPort) {
	t.Helper()
	datagram := make([]byte, 8)
	binary.BigEndian.PutUint16(datagram, from.Port())
	binary.BigEndian.PutUint16(datagram[2:], to.Port())
	binary.BigEndian.PutUint16(datagram[4:], 8)
	header := ipv4.Header{
		Version: 4, Len: ipv4.HeaderLen, TotalLen: 1500, Flags: ipv4.DontFragment, TTL: 64, Protocol: unix.IPPROTO_UDP,
		Src: from.Addr().AsSlice(), Dst: to.Addr().AsSlice(),
	}
	quoted, err := header.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	// The next hop's MTU is in the second half of what is unused otherwise.
	body := append(binary.BigEndian.AppendUint32(nil, 1400), append(quoted, datagram...)...)
	message, err := (&icmp.Message{Type: ipv4.ICMPTypeDestinationUnreachable, Code: code, Body: &icmp.RawBody{Data: body}}).Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenPacket("ip4:icmp", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.WriteTo(message, &net.IPAddr{IP: to.Addr().AsSlice()}); err != nil {
		t.Fatal(err)
	}
}
