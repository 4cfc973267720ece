package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// However many ports have something to pass on at once, it takes no more buffers.
func TestBuffersDoNotGrowWithThePorts(t *testing.T) {
	r := newRig(t)
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	const ports = 24
	var clients [ports]*net.UDPConn
	for i := range clients {
		clients[i] = dialUDP(t, r.serve(fmt.Sprint("game-", i), route.UDP))
	}
	r.backend(server.LocalAddr().String(), true)
	// sendAll has each client send once, and tells from where it came to the server.
	sendAll := func() (from [ports]netip.AddrPort) {
		t.Helper()
		for i, c := range clients {
			write(t, c, "hello")
			_, addr, err := server.ReadFromUDPAddrPort(make([]byte, 16))
			if err != nil {
				t.Fatal(err)
			}
			from[i] = addr
		}
		return from
	}
	replyAll := func(to [ports]netip.AddrPort) {
		t.Helper()
		for i, addr := range to {
			if _, err := server.WriteToUDPAddrPort(fmt.Append(nil, "to ", i), addr); err != nil {
				t.Fatal(err)
			}
		}
	}
	hearAll := func() {
		t.Helper()
		var heard [16]byte // hear takes more room than what is measured
		for i, c := range clients {
			if n, err := c.Read(heard[:]); err != nil || string(heard[:n]) != fmt.Sprint("to ", i) {
				t.Fatalf("client %d heard %q, %v", i, heard[:n], err)
			}
		}
	}
	replyAll(sendAll())
	hearAll()
	for _, p := range r.server.services[r.route.UID].ports {
		r.eventually("the loops have the session", p.udp.Settled)
	}
	loops := map[*loop.Loop]bool{}
	for l := loop.Next(); !loops[l]; l = loop.Next() {
		loops[l] = true
	}
	// The first turn of a loop makes what it keeps.
	replyAll(sendAll())
	hearAll()

	to := sendAll()
	blocked := make(chan struct{})
	for l := range loops {
		running := make(chan struct{})
		l.Do(func() { close(running); <-blocked })
		<-running
	}
	replyAll(to)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	close(blocked)
	hearAll()
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("passing on one reply of each of %d ports allocated %d bytes", ports, grown)
	}
}
