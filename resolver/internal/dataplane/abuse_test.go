package dataplane

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// crowd is how many connections one source makes.
const crowd = 15_000

// spare is by how much a host's memory may grow under any of these attacks.
const spare = 96 << 20

// connectAll makes many connections that say the same, and keeps them.
func connectAll(t *testing.T, n int, address, text string) []net.Conn {
	t.Helper()
	all := make([]net.Conn, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := range next {
				c, err := net.DialTimeout("tcp", address, 3*patience)
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
				all[i] = c
				// It may be refused already.
				_, _ = io.WriteString(c, text)
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, c := range all {
			if c != nil {
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return all
}

func bySource(limits guard.Limits) func(*route.Route) {
	return func(r *route.Route) { guarded(guard.Rules{PerSource: limits})(&r.Ports[0]) }
}

func TestSlowHandshakesKeepNobodyOut(t *testing.T) {
	const slow = 3000
	h := newHost(t)
	address := h.serve(attacked, v1alpha1.ProtocolMinecraft, func(r *route.Route) { r.Hold.Handshake = time.Minute })
	before := h.before()
	login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
	all := connectAll(t, slow, address, login[:3])
	h.until("the oldest made room", func(f fares) bool { return f.Refused[proto.Evicted] == slow-1000 })
	// The rest goes on byte by byte.
	for i := 3; i < 8; i++ {
		for _, c := range all {
			_, _ = io.WriteString(c, login[i:i+1])
		}
	}
	for range 20 {
		c := dialTCP(t, address)
		write(t, c, recorded(t, v1alpha1.ProtocolMinecraft, "status_765"))
		minecraftStatus(t, c)
	}
	h.played()
	if f := h.fares(); f.Wakes > before.Wakes || f.Clients != 2 || f.Goroutines > before.Goroutines+1100 {
		t.Errorf("slow handshakes: %+v", f)
	}
	write(t, dialTCP(t, address), login)
	h.until("a player is held", func(f fares) bool { return f.Held == 1 })
	h.grownBy(before, spare)
}

func TestACrowdFromOneSourceIsBoundedAndOthersAreServed(t *testing.T) {
	for name, c := range map[string]struct {
		crowd  int
		with   func(*route.Route)
		reason proto.Reason
		held   int32
	}{
		"by what a service holds":          {crowd, func(*route.Route) {}, proto.QueueFull, 1000},
		"by what a source may have held":   {3000, bySource(guard.Limits{Connections: 50}), proto.SourceConnections, 50},
		"by what a source may have at all": {3000, bySource(guard.Limits{Sessions: 70}), proto.SourceSessions, 70},
		"by how often a source may ask": {3000, func(r *route.Route) {
			guarded(guard.Rules{PerSourceRate: 30})(&r.Ports[0])
		}, proto.SourceRate, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			address := h.serve(attacked, v1alpha1.ProtocolTCP, c.with)
			before := h.before()
			connectAll(t, c.crowd, address, "x")
			f := h.until("all are held or refused", func(f fares) bool { return int(f.Held)+f.Refused[c.reason] == c.crowd })
			// A rate goes on giving while the crowd comes.
			if c.held > 0 && f.Held != c.held || c.held == 0 && (f.Held < 30 || f.Held > 100) {
				t.Errorf("%d are held, want %d", f.Held, c.held)
			}
			h.played()
			if c.reason != proto.QueueFull {
				write(t, from(t, elsewhere, route.TCP, address), "x")
				h.until("another source's player is held", func(now fares) bool { return now.Held > f.Held })
			}
			h.grownBy(before, spare)
		})
	}
	t.Run("by what a source may have of an awake service", func(t *testing.T) {
		const most = 100
		h := newHost(t)
		server := freeAddress(t, route.TCP)
		listenTCP(t, server, echo)
		address := h.serve(attacked, v1alpha1.ProtocolTCP, awakeAt(server), bySource(guard.Limits{Sessions: most}))
		before := h.before()
		player := from(t, elsewhere, route.TCP, address)
		write(t, player, "x")
		expect(t, player, "x")
		connectAll(t, crowd, address, "x")
		h.until("most are refused", func(f fares) bool { return f.Refused[proto.SourceSessions] == crowd-most && f.Relayed == most+1 })
		write(t, player, "x")
		expect(t, player, "x")
		expectEcho(t, from(t, elsewhere, route.TCP, address))
		h.played()
		h.grownBy(before, spare)
	})
}

func expectEcho(t *testing.T, c net.Conn) {
	t.Helper()
	write(t, c, "echo")
	expect(t, c, "echo")
}

// Without a rule a crowd may use up what a service may have, and others still find room.
func TestACrowdLeavesFilesToOtherServices(t *testing.T) {
	h := newHost(t)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)) })
	address := h.serve(attacked, v1alpha1.ProtocolTCP, func(r *route.Route) { r.Hold.MaxConnections = 100_000 })
	connectAll(t, crowd, address, "x")
	h.until("all are held or refused", func(f fares) bool { return int(f.Held)+f.Refused[proto.TooManyConnections] == crowd })
	h.played()
	for range 100 {
		expectEcho(t, from(t, "127.0.0.3", route.TCP, h.players[0].RemoteAddr().String()))
	}
}

// spoofed sends a datagram from each of n addresses of loopback.
func spoofed(t testing.TB, n int, address string, text func(i int) []byte) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	to := netip.MustParseAddrPort(address)
	for i := range n {
		info := unix.Inet4Pktinfo{Spec_dst: [4]byte{127, byte(1 + i>>16), byte(i >> 8), byte(i)}}
		_, _, err := c.WriteMsgUDPAddrPort(text(i), unix.PktInfo4(&info), to)
		// The answers find nobody, and the kernel says so.
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
}

func TestFloodsFromForgedAddressesAreBounded(t *testing.T) {
	t.Parallel()
	const flood = 30_000
	for protocol, text := range map[v1alpha1.Protocol]string{
		v1alpha1.ProtocolUDP:     "x",
		v1alpha1.ProtocolBedrock: recorded(t, v1alpha1.ProtocolBedrock, "request1"),
		v1alpha1.ProtocolSource:  "x",
		v1alpha1.ProtocolQuake3:  recorded(t, v1alpha1.ProtocolQuake3, "getchallenge"),
	} {
		t.Run("to wake "+string(protocol), func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			address := h.serve(attacked, protocol, func(r *route.Route) {
				guarded(guard.Rules{PerSourceRate: 1, PerServiceRate: 100})(&r.Ports[0])
			})
			before := h.before()
			spoofed(t, flood, address, func(int) []byte { return []byte(text) })
			h.until("the rate is used up", func(f fares) bool { return f.Held >= 100 })
			h.played()
			if f := h.fares(); f.Held > 200 || f.Refused[proto.ServiceRate] == 0 {
				t.Errorf("of a flood %+v", f)
			}
			h.grownBy(before, spare)
		})
	}
	for protocol, query := range map[v1alpha1.Protocol]string{v1alpha1.ProtocolBedrock: "ping", v1alpha1.ProtocolQuake3: "getstatus"} {
		t.Run("to have answers of "+string(protocol)+" sent elsewhere", func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			address := h.serve(attacked, protocol, func(r *route.Route) { guarded(guard.Rules{})(&r.Ports[0]) })
			before := h.before()
			text := recorded(t, protocol, query)
			spoofed(t, flood, address, func(int) []byte { return []byte(text) })
			f := h.until("answers are rare", func(f fares) bool { return f.Refused[proto.AnswerRate] > 0 })
			// 1,000 at once and 200 a second.
			if f.Answered > 1000+60*200 || f.Wakes > before.Wakes || f.Clients != 2 {
				t.Errorf("of a flood %+v", f)
			}
			h.played()
			h.grownBy(before, spare)
		})
	}
	t.Run("of sessions with an awake service", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		server := freeAddress(t, route.UDP)
		listenUDP(t, server)
		address := h.serve(attacked, v1alpha1.ProtocolUDP, awakeAt(server))
		before := h.before()
		spoofed(t, flood, address, func(int) []byte { return []byte("x") })
		f := h.until("a service has its share of sessions", func(f fares) bool { return f.Refused[proto.Evicted] > 0 })
		if f.Relayed > maxHostSessions*8/9+1+64 {
			t.Errorf("of %d sessions the service has %d", maxHostSessions, f.Relayed)
		}
		h.played()
		expectEcho(t, from(t, "127.0.0.3", route.TCP, h.players[0].RemoteAddr().String()))
		answered(t, from(t, elsewhere, route.UDP, h.players[1].RemoteAddr().String()))
		h.grownBy(before, spare)
	})
}

func TestAClientThatNeverReadsHarmsItself(t *testing.T) {
	const clients = 50
	t.Run("while it sleeps", func(t *testing.T) {
		h := newHost(t)
		address := h.serve(attacked, v1alpha1.ProtocolMinecraft, func(r *route.Route) {
			r.Hold.Handshake = 2 * time.Second
			r.Ports[0].Answers = proto.Answers{Favicon: "data:image/png;base64," + strings.Repeat("A", 16_000)}
		})
		before := h.before()
		status := recorded(t, v1alpha1.ProtocolMinecraft, "status_765")
		var wg sync.WaitGroup
		for _, c := range connectAll(t, clients, address, status) {
			wg.Go(func() {
				// The request alone, again and again.
				more := strings.Repeat("\x01\x00", 512)
				for range 100 {
					if _, err := io.WriteString(c, more); err != nil {
						return
					}
				}
			})
		}
		h.played()
		h.grownBy(before, spare)
		h.until("their time is over", func(f fares) bool { return f.Goroutines < before.Goroutines+20 })
		wg.Wait()
	})
	t.Run("while it is relayed", func(t *testing.T) {
		h := newHost(t)
		server := freeAddress(t, route.TCP)
		chunk := make([]byte, 64<<10)
		listenTCP(t, server, func(c *net.TCPConn) {
			for {
				if _, err := c.Write(chunk); err != nil {
					return
				}
			}
		})
		address := h.serve(attacked, v1alpha1.ProtocolTCP, awakeAt(server))
		before := h.before()
		connectAll(t, clients, address, "x")
		h.until("all are relayed", func(f fares) bool { return f.Relayed == clients })
		h.played()
		h.grownBy(before, spare)
	})
}
