package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/route"
)

// A server whose receive buffer, of the size that Linux lets anybody have, would
// overflow if all that was held came at once: it reads at most 64 datagrams a
// millisecond.
func TestHeldDatagramsDontOverflowAServersBuffer(t *testing.T) {
	const clients, each = 50, 60
	r := newRig(t)
	address := r.serve("game", route.UDP)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	conns := make([]*net.UDPConn, clients)
	for i := range conns {
		conns[i] = dialUDP(t, address)
	}
	for j := range each {
		for i, c := range conns {
			if i%5 == 0 {
				<-tick.C // the port's own buffer is not what this is about
			}
			write(t, c, fmt.Sprintf("%d %d", i, j))
		}
	}
	r.queued(clients)

	server := freeAddress(t, route.UDP)
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadBuffer(208 << 10); err != nil {
		t.Fatal(err)
	}
	r.backend(server, true)

	next := make([]int, clients)
	got := 0
	buf := make([]byte, 64)
	for late := time.Now().Add(patience); got < clients*each && time.Now().Before(late); <-tick.C {
		for range 64 {
			_ = conn.SetReadDeadline(time.Now().Add(100 * time.Microsecond))
			n, err := conn.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			var client, number int
			if _, err := fmt.Sscanf(string(buf[:n]), "%d %d", &client, &number); err != nil {
				t.Fatalf("got %q: %v", buf[:n], err)
			}
			if number != next[client] {
				t.Fatalf("client %d: got datagram %d, want %d", client, number, next[client])
			}
			next[client]++
			got++
		}
	}
	if got != clients*each {
		t.Errorf("the server got %d datagrams, want %d", got, clients*each)
	}
}
