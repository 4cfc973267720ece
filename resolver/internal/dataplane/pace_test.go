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

// usualBuffer makes a socket have the receive buffer that Linux gives who doesn't
// ask; it releases twice what is asked for.
func usualBuffer(t *testing.T, c *net.UDPConn) {
	t.Helper()
	if err := c.SetReadBuffer(104 << 10); err != nil {
		t.Fatal(err)
	}
}

// writeNumbers sends numbers, ten a millisecond: the port's own buffer is not what
// this is about.
func writeNumbers(t *testing.T, c *net.UDPConn, n int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range n {
		if i%10 == 0 {
			<-tick.C
		}
		write(t, c, fmt.Sprint(i))
	}
}

// A server whose receive buffer would overflow if all that was held came at once:
// it reads at most 64 datagrams a millisecond.
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
	usualBuffer(t, conn)
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

// A server that answers at once: what it says is passed on while the rest of what
// was held is still delivered, or it would overflow the session's own socket.
func TestTheServersAnswersArePassedOnWhileTheRestIsDelivered(t *testing.T) {
	const each = 450
	r := newRig(t)
	address := r.serve("game", route.UDP)
	client := dialUDP(t, address)
	writeNumbers(t, client, each)
	r.queued(1)

	server := freeAddress(t, route.UDP)
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	usualBuffer(t, conn)
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if _, err := conn.WriteToUDPAddrPort(buf[:n], from); err != nil {
				return
			}
		}
	}()
	r.backend(server, true)

	buf := make([]byte, 64)
	_ = client.SetReadDeadline(time.Now().Add(patience))
	for i := range each {
		n, err := client.Read(buf)
		if err != nil {
			t.Fatalf("%d of %d answers came: %v", i, each, err)
		}
		if string(buf[:n]) != fmt.Sprint(i) {
			t.Fatalf("answer %d is %q", i, buf[:n])
		}
	}
}

// heldNumbers has clients who are held with so many numbered datagrams each.
func heldNumbers(t *testing.T, r *rig, address string, clients int32, each int) []*net.UDPConn {
	t.Helper()
	conns := make([]*net.UDPConn, clients)
	for i := range conns {
		conns[i] = dialUDP(t, address)
		writeNumbers(t, conns[i], each)
	}
	r.queued(clients)
	return conns
}

// Strangers who have much to deliver to a server that says nothing keep nobody waiting who has
// little, and what they sent comes to the server once, and in order.
func TestWhoHasMuchToDeliverKeepsNobodyWaitingWhoHasLittle(t *testing.T) {
	const clients, each = 10, 400
	r := newRig(t)
	address := r.serve("game", route.UDP)
	heldNumbers(t, r, address, clients, each)

	server := freeAddress(t, route.UDP)
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadBuffer(4 << 20); err != nil {
		t.Fatal(err)
	}
	r.backend(server, true)
	late := dialUDP(t, address)
	next, got, before := map[netip.AddrPort]int{}, 0, 0
	buf := make([]byte, 64)
	for got < clients*each || before == 0 {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatalf("after %d of %d datagrams: %v", got, clients*each, err)
		}
		if string(buf[:n]) == "hello" {
			before = got
			continue
		}
		if want := fmt.Sprint(next[from]); string(buf[:n]) != want {
			t.Fatalf("got %q of a client, want %s", buf[:n], want)
		}
		next[from]++
		if got++; got == 2*window { // the strangers are waiting by now
			write(t, late, "hello")
		}
	}
	if before > clients*each/2 {
		t.Errorf("%d datagrams came before that of who came late", before)
	}
	if len(next) != clients {
		t.Errorf("the server knows %d clients, want %d", len(next), clients)
	}
	r.eventually("nothing is held", func() bool { return r.server.Held.Used() == 0 })
}

// A server that answers, and is busy with something else for a while.
func TestHeldDatagramsWaitForAServerThatIsBusy(t *testing.T) {
	const clients, each, busy = 10, 100, 60 * time.Millisecond
	r := newRig(t)
	address := r.serve("game", route.UDP)
	conns := heldNumbers(t, r, address, clients, each)

	server := freeAddress(t, route.UDP)
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server)))
	if err != nil {
		t.Fatal(err)
	}
	usualBuffer(t, conn)
	got := make(chan int, 1)
	go func() {
		buf := make([]byte, 64)
		for n := 0; ; n++ {
			if n%200 == 100 {
				<-time.After(busy)
			}
			size, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				got <- n
				return
			}
			if _, err := conn.WriteToUDPAddrPort(buf[:size], from); err != nil {
				t.Errorf("answer: %v", err)
			}
		}
	}()
	r.backend(server, true)
	for i, c := range conns {
		for j := range each {
			if hear(t, c, fmt.Sprint(j)); t.Failed() {
				t.Fatalf("client %d", i)
			}
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n != clients*each {
		t.Errorf("the server got %d datagrams, want %d", n, clients*each)
	}
}

// window is how far held datagrams go ahead of the server's answers.
const window = 64

// The server is lost in the middle of a delivery: it keeps what it was sent, which it
// answers, and the next gets the rest.
func TestAServerThatIsLostDuringADeliveryLeavesTheRestToTheNext(t *testing.T) {
	const each = 1000
	r := newRig(t)
	address := r.serve("game", route.UDP)
	client := dialUDP(t, address)
	writeNumbers(t, client, each)
	r.queued(1)

	first, next := freeAddress(t, route.UDP), freeAddress(t, route.UDP)
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(first)))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	second := listenUDP(t, next)
	r.servers(serving(first, "a"))
	// It answers twice, and then nothing, so that the delivery takes its time. The
	// second answer is passed on before all is delivered, or nothing would be left.
	buf := make([]byte, 64)
	for n := range window + 20 {
		size, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(buf[:size]); got != fmt.Sprint(n) {
			t.Fatalf("the first server got %q, want %d", got, n)
		}
		if n < 2 {
			if _, err := conn.WriteToUDPAddrPort(buf[:size], from); err != nil {
				t.Fatal(err)
			}
			hear(t, client, fmt.Sprint(n))
		}
	}
	r.servers(serving(next, "b"))
	r.eventually("the second server gets the last datagram", func() bool {
		got := second.all()
		return len(got) > 0 && got[len(got)-1] == fmt.Sprint(each-1)
	})
	// What the first got meanwhile is in its buffer.
	taken := window + 20
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	for {
		size, _, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			break
		}
		if got := string(buf[:size]); got != fmt.Sprint(taken) {
			t.Fatalf("the first server got %q, want %d", got, taken)
		}
		taken++
	}
	_ = conn.Close()
	for i, got := range second.all() {
		if want := fmt.Sprint(taken + i); got != want {
			t.Fatalf("the second server got %q, want %s: the first had %d", got, want, taken)
		}
	}
	r.eventually("nothing is held", func() bool { return r.server.Held.Used() == 0 })
}
