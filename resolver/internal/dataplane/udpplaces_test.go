package dataplane

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// manyClients is one UDP socket that is many clients, each at an address of loopback.
type manyClients struct {
	*net.UDPConn
	to *net.UDPAddr
}

func newManyClients(t *testing.T, address string) manyClients {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1) })
	_ = c.SetReadBuffer(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return manyClients{c, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address))}
}

// at is the address of one of the clients.
func (manyClients) at(client int) (address [4]byte) {
	binary.BigEndian.PutUint32(address[:], uint32(127<<24+1<<16+client))
	return address
}

func (c manyClients) say(t *testing.T, client int, text string) {
	t.Helper()
	if _, _, err := c.WriteMsgUDP([]byte(text), unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: c.at(client)}), c.to); err != nil {
		t.Fatal(err)
	}
}

// answered is who was answered until nobody was for a while.
func (c manyClients) answered(while time.Duration) map[[4]byte]int {
	got := map[[4]byte]int{}
	buf, control := make([]byte, 64), make([]byte, 64)
	for {
		_ = c.SetReadDeadline(time.Now().Add(while))
		_, n, _, _, err := c.ReadMsgUDP(buf, control)
		if err != nil {
			return got
		}
		messages, _ := unix.ParseSocketControlMessage(control[:n])
		for _, m := range messages {
			got[[4]byte(m.Data[8:12])]++
		}
	}
}

// The kernel's own ports are few, and a UDP session is told apart by its server, too.
func TestUDPSessionsGoBeyondTheKernelsPorts(t *testing.T) {
	if !sandboxed(t, map[string]string{"net/ipv4/ip_local_port_range": "40000 40019"}) {
		return
	}
	const clients = 300
	r := newRig(t)
	address := r.serve("game", route.UDP, probed)
	s := listenUDP(t, "127.0.0.1:5000")
	r.backend("127.0.0.1:5000", true)
	c := newManyClients(t, address)
	for client := range clients {
		c.say(t, client, "hello")
	}
	if got := c.answered(time.Second); len(got) != clients {
		t.Errorf("%d of %d clients were answered", len(got), clients)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.from) != clients {
		t.Errorf("the server knows %d clients apart, of %d", len(s.from), clients)
	}
}

// That this host has no port left for another connection to a server tells nothing of the
// server: those who have one play on, and who comes next is served once one is free.
func TestAServerIsNotAvoidedForTheKernelsPorts(t *testing.T) {
	const ports, more = 20, 5
	if !sandboxed(t, map[string]string{"net/ipv4/ip_local_port_range": "40000 40019"}) {
		return
	}
	r := newRig(t)
	address := r.serve("game", route.TCP)
	r.phase(v1alpha1.PhaseAwake)
	listenTCP(t, "127.0.0.1:5000", tag("hello"))
	r.backend("127.0.0.1:5000", true)
	all := make(chan net.Conn, ports+more)
	for i := range ports + more {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 50000 + i}}
		c, err := d.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			if n, _ := c.Read(make([]byte, 5)); n == 5 {
				all <- c
			}
		}()
	}
	r.never("the server is avoided", time.Second, func() bool {
		_, ok := r.server.services[r.route.UID].Queue.PickForQuery(hold.PortID{Name: "game", Network: route.TCP})
		return !ok
	})
	var played []net.Conn
	r.eventually("most have a server", func() bool { return r.sessions().Sessions >= ports/2 })
	for more := true; more; {
		select {
		case c := <-all:
			played = append(played, c)
		case <-time.After(time.Second):
			more = false
		}
	}
	// The resolver's own calls may take one, too.
	if len(played) < ports/2 || len(played) > ports {
		t.Fatalf("%d clients are served with %d ports", len(played), ports)
	}
	_ = played[0].Close()
	select {
	case <-all:
	case <-time.After(patience):
		t.Error("nobody else is served once a port is free")
	}
}

// A service has as many sessions at one server as there may be files for it, 60,000
// where the limit allows that. Who comes after that is refused and counted, and another
// service is served.
func TestSixtyThousandUDPSessionsAtOneServer(t *testing.T) {
	if !sandboxed(t, nil) {
		return
	}
	const most, spare = 60_000, 2000
	files := unix.Rlimit{Cur: most*9/8 + spare, Max: most*9/8 + spare}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
			t.Fatal(err)
		}
	}
	all := int(files.Cur) - spare
	r := newRig(t, maxFilesOf(all))
	address, other := r.serve("game", route.UDP, probed), ""
	server := listenUDP(t, "127.0.0.1:5000")
	_ = server.SetReadBuffer(4 << 20)
	r.backend("127.0.0.1:5000", true)
	second := r.route
	second.UID, second.Name, second.Service = "uid-2", "arena", "arena"
	second.Ports = []route.Port{r.route.Ports[0]}
	second.Ports[0].ResolverPort = int32(freePort(t, route.UDP))
	r.server.Update(&second)
	other = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(second.Ports[0].ResolverPort)).String()
	c := newManyClients(t, address)
	refusedFor := func(reason proto.Reason) int {
		return int(r.metric("dormouse_resolver_refused_clients_total", map[string]string{"service": "lobby", "reason": string(reason)}))
	}
	refused := func() int { return refusedFor(proto.TooManySessions) }
	const atOnce = 200
	played := 0
	for client := 0; client < all && refused() == 0; client += atOnce {
		for _, text := range []string{"hello", "again"} {
			got := map[[4]byte]int{}
			for i := range atOnce {
				c.say(t, client+i, text)
			}
			if !within(patience, func() bool {
				for who := range c.answered(20 * time.Millisecond) {
					got[who] = 1
				}
				// Where there is no room, who has not been answered yet makes some first.
				return len(got)+refused()+refusedFor(proto.Evicted) >= atOnce
			}) {
				t.Fatalf("after %d clients %d of %d were answered to %q, and %d were refused", client, len(got), atOnce, text, refused())
			}
			if text == "again" {
				played += len(got)
			}
		}
	}
	t.Logf("%d sessions at one server, of %d files", played, all)
	// Its share is eight ninths, and 60,000 at most sessions fit into a server's ports.
	if least := all*8/9 - 2*atOnce; played < least || refused() == 0 {
		t.Errorf("%d clients played, want %d at least, and %d were refused", played, least, refused())
	}
	server.mu.Lock()
	if len(server.from) < played {
		t.Errorf("the server knows %d clients apart, of %d", len(server.from), played)
	}
	server.mu.Unlock()
	play(t, dialUDP(t, other), "a", "b")
}

// A session that can't be had for want of a file says nothing of the server.
func TestAServerIsNotAvoidedForALocalError(t *testing.T) {
	if !sandboxed(t, nil) {
		return
	}
	r := newRig(t, maxFilesOf(10_000))
	address := r.serve("game", route.UDP, probed)
	listenUDP(t, "127.0.0.1:5000")
	r.backend("127.0.0.1:5000", true)
	r.phase(v1alpha1.PhaseAwake)
	first, second := dialUDP(t, address), dialUDP(t, address)
	play(t, first, "a", "b")
	r.eventually("the first client's socket stays the same file", r.server.services[r.route.UID].portNamed("game").udp.Settled)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var last int
	for _, file := range open {
		n, _ := strconv.Atoi(file.Name())
		last = max(last, n)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	// All below the last are used up.
	var fill []int
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fill = append(fill, fd)
		if fd > last {
			break
		}
	}
	few := unix.Rlimit{Cur: uint64(last) + 2, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	write(t, second, "b")
	ok := within(patience, func() bool {
		return r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": string(proto.TooManySessions)}) == 1
	})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	for _, fd := range fill {
		_ = unix.Close(fd)
	}
	if !ok {
		t.Error("a client without a file is not counted as refused")
	}
	if _, ok := r.server.services[r.route.UID].Queue.Pick(hold.PortID{Name: "game", Network: route.UDP}); !ok {
		t.Error("the server is avoided")
	}
	play(t, second, "c")
	play(t, first, "d")
}

// Of many who say one thing and are not heard of again, all but the last make room.
func TestStrangersMakeRoomForPlayers(t *testing.T) {
	t.Parallel()
	const most, noise = 180, 500
	r := newRig(t, maxUDP(most))
	address := r.serve("game", route.UDP, probed)
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	player := dialUDP(t, address)
	play(t, player, "a", "b")
	c := newManyClients(t, address)
	for client := range noise {
		c.say(t, client, "x")
		if client%20 == 0 {
			play(t, player, "still here")
		}
	}
	c.answered(200 * time.Millisecond)
	late := dialUDP(t, address)
	play(t, late, "a", "b", "c")
	play(t, player, "still here")
	// Those that made room, and those that are left, are no players.
	if s := r.sessions(); s.Sessions-s.Unvalidated != 2 {
		t.Errorf("two players among noise count as %+v", s)
	}
	if n := r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": string(proto.Evicted)}); n == 0 {
		t.Error("nobody made room")
	}
	if n := r.server.Usage().UDPSessions; n > most {
		t.Errorf("%d sessions, of %d", n, most)
	}
}

// Who speaks, and doesn't speak again once the server has answered, may be anybody:
// that keeps no server awake behind the resolver.
func TestNoiseKeepsNoServerAwake(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address := r.serve("game", route.UDP, probed)
	server := freeAddress(t, route.UDP)
	game := listenUDP(t, server)
	r.backend(server, true)
	c := newManyClients(t, address)
	for client := range 20 {
		c.say(t, client, "x")
	}
	r.eventually("the server has heard of all", func() bool { return len(game.all()) == 20 })
	c.answered(200 * time.Millisecond)
	if s := r.sessions(); !s.LastActive.IsZero() || s.Sessions != 20 || s.Unvalidated != 20 {
		t.Errorf("noise counts as %+v", s)
	}
	c.say(t, 7, "y")
	r.eventually("a player is active", func() bool { return time.Since(r.sessions().LastActive) < time.Minute })
	if s := r.sessions(); s.Sessions != 20 || s.Unvalidated != 19 {
		t.Errorf("a player among noise counts as %+v", s)
	}
}
