package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// udpServer notes what it gets, by the socket that sent it, and echoes.
type udpServer struct {
	*net.UDPConn
	mu   sync.Mutex
	got  []string
	from map[netip.AddrPort][]string
	// last is when it last answered to what.
	last map[string]time.Time
	done chan struct{}
}

// peers is how many addresses have sent something.
func (s *udpServer) peers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.from)
}

func listenUDP(t testing.TB, address string) *udpServer {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		t.Fatal(err)
	}
	s := &udpServer{UDPConn: c, from: map[netip.AddrPort][]string{}, last: map[string]time.Time{}, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		buf := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			s.mu.Lock()
			s.got = append(s.got, string(buf[:n]))
			s.from[from] = append(s.from[from], string(buf[:n]))
			s.mu.Unlock()
			_, _ = c.WriteToUDPAddrPort(append([]byte("re:"), buf[:n]...), from)
			s.mu.Lock()
			s.last[string(buf[:n])] = time.Now()
			s.mu.Unlock()
		}
	}()
	t.Cleanup(s.stop)
	return s
}

// answered is when the server last answered to these words; zero when it never did.
func (s *udpServer) answered(words string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[words]
}

func (s *udpServer) stop() {
	_ = s.Close()
	<-s.done
}

func (s *udpServer) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func dialUDP(t testing.TB, address string) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func hear(t testing.TB, c *net.UDPConn, want string) {
	t.Helper()
	buf := make([]byte, 64<<10)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatalf("waiting for %q: %v", want, err)
	}
	if string(buf[:n]) != want {
		t.Fatalf("got %q, want %q", buf[:n], want)
	}
}

func TestHeldDatagramsArriveInOrderFromOneSourceAndAreAnswered(t *testing.T) {
	r := newRig(t)
	c := dialUDP(t, r.serve("game", route.UDP))
	for _, text := range []string{"one", "", "three"} {
		write(t, c, text)
	}
	// A write of nothing sends no datagram on some paths, so it is sent as such.
	r.queued(1)
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, true)
	hear(t, c, "re:one")
	hear(t, c, "re:")
	hear(t, c, "re:three")
	write(t, c, "four")
	hear(t, c, "re:four")
	s.mu.Lock()
	if len(s.from) != 1 {
		t.Errorf("the server saw %d peers, want 1", len(s.from))
	}
	s.mu.Unlock()
	for direction, want := range map[string]float64{"to_server": 4, "to_client": 4} {
		// What a client has heard may be counted a moment later.
		r.eventually(fmt.Sprintf("%v datagrams are counted %s", want, direction), func() bool {
			return r.metric("dormouse_resolver_datagrams_total", map[string]string{"direction": direction}) == want
		})
	}
	for direction, want := range map[string]float64{"to_server": 12, "to_client": 24} {
		r.eventually(fmt.Sprintf("%v bytes are counted %s", want, direction), func() bool {
			return r.metric("dormouse_resolver_bytes_total", map[string]string{"direction": direction}) == want
		})
	}
	r.eventually("the session counts", func() bool { s := r.sessions(); return s.Sessions == 1 && s.Queued == 0 })
}

func TestAServerThatIsNotBoundYetGetsEachDatagramOnceAndInOrder(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	const clients, each = 5, 4
	var conns []*net.UDPConn
	for i := range clients {
		c := dialUDP(t, address)
		for j := range each {
			write(t, c, fmt.Sprintf("%d.%d", i, j))
		}
		conns = append(conns, c)
	}
	r.queued(clients)
	server := freeAddress(t, route.UDP)
	// The container runs, and its port is not bound.
	r.backend(server, true)
	r.eventually("datagrams were refused", func() bool { return r.metric("dormouse_resolver_refused_datagrams_total", nil) >= 2 })
	s := listenUDP(t, server)
	for i, c := range conns {
		for j := range each {
			hear(t, c, fmt.Sprintf("re:%d.%d", i, j))
		}
	}
	if got := len(s.all()); got != clients*each {
		t.Errorf("the server got %d datagrams, want %d", got, clients*each)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.from) != clients {
		t.Errorf("the server saw %d peers, want %d", len(s.from), clients)
	}
	for peer, got := range s.from {
		if !slices.IsSorted(got) {
			t.Errorf("%s sent %v", peer, got)
		}
	}
}

func TestAContainerThatDoesNotRunGetsNoDatagram(t *testing.T) {
	r := newRig(t)
	c := dialUDP(t, r.serve("game", route.UDP))
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, false)
	write(t, c, "x")
	r.queued(1)
	r.never("the server gets it", 100*time.Millisecond, func() bool { return len(s.all()) > 0 })
	r.backend(server, true)
	hear(t, c, "re:x")
}

func TestDatagramsOverTheBoundAreDroppedAndCounted(t *testing.T) {
	r := newRig(t)
	r.route.Hold.MaxBytes = 1024
	c := dialUDP(t, r.serve("game", route.UDP))
	big := strings.Repeat("x", 500)
	for i := range 5 {
		write(t, c, fmt.Sprintf("%d%s", i, big))
	}
	r.eventually("three are dropped", func() bool {
		return r.metric("dormouse_resolver_dropped_datagrams_total", nil) == 3
	})
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	hear(t, c, "re:0"+big)
	hear(t, c, "re:1"+big)
	write(t, c, "later")
	hear(t, c, "re:later")
}

// A datagram may be larger over IPv6 than over IPv4 by the size of IPv4's header.
func TestDatagramsThatCannotBeSentAreCounted(t *testing.T) {
	const most = 65507 // of IPv4
	for _, c := range []struct{ client, server, direction string }{
		{"::1", "127.0.0.1", "to_server"},
		{"127.0.0.1", "::1", "to_client"},
	} {
		t.Run(c.direction, func(t *testing.T) {
			r := newRig(t, onAll)
			port := netip.MustParseAddrPort(r.serve("game", route.UDP)).Port()
			server := netip.AddrPortFrom(netip.MustParseAddr(c.server), uint16(freePort(t, route.UDP))).String()
			s := listenUDP(t, server)
			r.backend(server, true)
			client := dialUDP(t, netip.AddrPortFrom(netip.MustParseAddr(c.client), port).String())
			unsent := func() float64 {
				return r.metric("dormouse_resolver_unsent_datagrams_total", map[string]string{"direction": c.direction})
			}
			// The server adds three bytes.
			size := most
			if c.direction == "to_server" {
				size = most + 1
			}
			large := strings.Repeat("x", size)
			// One is held, and the other is not.
			for lost := range 2 {
				write(t, client, large)
				r.eventually("it is counted", func() bool { return unsent() == float64(lost+1) })
				write(t, client, "small")
				hear(t, client, "re:small")
			}
			want := []string{large, "small", large, "small"}
			if c.direction == "to_server" {
				want = []string{"small", "small"}
			}
			if got := s.all(); !slices.Equal(got, want) {
				t.Errorf("the server got %d datagrams, want %d", len(got), len(want))
			}
		})
	}
}

func TestADatagramThatIsTooLargeForTheServerHoldsNobodyUp(t *testing.T) {
	r := newRig(t, onAll)
	port := netip.MustParseAddrPort(r.serve("game", route.UDP)).Port()
	at := func(host string) string { return netip.AddrPortFrom(netip.MustParseAddr(host), port).String() }
	// More than a server is asked by in all the time that a client waits here.
	const crowd = 20
	var first, second *net.UDPConn
	for range crowd {
		first = dialUDP(t, at("::1"))
		write(t, first, strings.Repeat("x", 65508))
	}
	r.queued(crowd)
	second = dialUDP(t, at("127.0.0.1"))
	write(t, second, "small")
	r.queued(crowd + 1)
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	hear(t, second, "re:small")
	write(t, first, "small, too")
	hear(t, first, "re:small, too")
	r.queued(0)
}

func TestAReplyComesFromTheAddressThatTheClientSentTo(t *testing.T) {
	r := newRig(t, onAll)
	address := r.serve("game", route.UDP)
	port := netip.MustParseAddrPort(address).Port()
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	for _, target := range []string{"127.0.0.1", "127.0.0.2", "127.7.7.7", "::1"} {
		t.Run(target, func(t *testing.T) {
			// A connected socket takes datagrams of its peer's address only.
			c := dialUDP(t, netip.AddrPortFrom(netip.MustParseAddr(target), port).String())
			write(t, c, "x")
			hear(t, c, "re:x")
			write(t, c, "y")
			hear(t, c, "re:y")
		})
	}
}

func TestUDPWakesBeforeItIsSentAnywhereWhileFallingAsleep(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, true)
	// The first client is let in by a call of its own, and the server is known
	// to be up from then on.
	warm := dialUDP(t, address)
	write(t, warm, "warm")
	hear(t, warm, "re:warm")

	if n := r.operator.count(); n != 1 {
		t.Fatalf("%d wake calls, want 1", n)
	}
	r.phase(v1alpha1.PhaseFallingAsleep)
	c := dialUDP(t, address)
	write(t, c, "x")
	hear(t, c, "re:x")
	if n := r.operator.count(); n != 2 {
		t.Errorf("%d wake calls, want 2", n)
	}
	if got := s.all(); !slices.Equal(got, []string{"warm", "x"}) {
		t.Errorf("the server got %v", got)
	}
}

func TestEveryDatagramIsCounted(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, true)
	const clients, each = 10, 200
	var wg sync.WaitGroup
	for i := range clients {
		c := dialUDP(t, address)
		wg.Go(func() {
			for j := range each {
				text := fmt.Sprintf("%d.%d", i, j)
				_, _ = c.Write([]byte(text))
				buf := make([]byte, 64)
				n, err := c.Read(buf)
				if err != nil || string(buf[:n]) != "re:"+text {
					t.Errorf("got %q, %v, want %q", buf[:n], err, "re:"+text)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := len(s.all()); got != clients*each {
		t.Errorf("the server got %d datagrams, want %d", got, clients*each)
	}
	for _, direction := range []string{"to_server", "to_client"} {
		// What a client has heard may be counted a moment later.
		r.eventually("all are counted "+direction, func() bool {
			return r.metric("dormouse_resolver_datagrams_total", map[string]string{"direction": direction}) == clients*each
		})
	}
}

func TestAFullSizedDatagramPasses(t *testing.T) {
	r := newRig(t)
	c := dialUDP(t, r.serve("game", route.UDP))
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	big := strings.Repeat("z", 60_000)
	write(t, c, big)
	r.backend(server, true)
	hear(t, c, "re:"+big)
}
