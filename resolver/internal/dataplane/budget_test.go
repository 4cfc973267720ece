package dataplane

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	minecraftwire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func maxHeld(n int64) rigOption { return func(o *Options) { o.MaxHeldBytes = n } }

func TestHeldConnectionsShareOneBudgetAndLoseNothing(t *testing.T) {
	const clients, each, budget = 8, 256 << 10, 64 << 10
	// One service has eight ninths of it.
	const share = (8*budget + 8) / 9
	r := newRig(t, maxHeld(budget))
	address := r.serve("game", route.TCP)
	sums := make(chan [32]byte, clients)
	want := map[[32]byte]bool{}
	var conns []*net.TCPConn
	for range clients {
		sent := make([]byte, each)
		_, _ = rand.Read(sent)
		want[sha256.Sum256(sent)] = true
		c := dialTCP(t, address)
		conns = append(conns, c)
		go func() {
			_, _ = c.Write(sent)
			_ = c.CloseWrite()
		}()
	}
	r.queued(clients)
	r.eventually("the share is used up", func() bool { return r.server.Held.Used() == share })
	for name, want := range map[string]float64{"dormouse_resolver_held_bytes": share, "dormouse_resolver_max_held_bytes": budget} {
		if got := r.metric(name, nil); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	r.never("more is held than that", 50*time.Millisecond, func() bool { return r.server.Held.Used() > share })
	// A client that sent nothing is noticed all the same when it leaves.
	idle := dialTCP(t, address)
	r.queued(clients + 1)
	_ = idle.Close()
	r.queued(clients)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, func(c *net.TCPConn) {
		h := sha256.New()
		_, _ = io.Copy(h, c)
		sums <- [32]byte(h.Sum(nil))
	})
	r.backend(server, true)
	for range clients {
		if !want[<-sums] {
			t.Error("a server got something else than a client sent")
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
	r.eventually("everything is given back", func() bool { return r.server.Held.Used() == 0 && r.server.Clients() == 0 })
}

func TestHeldDatagramsShareOneBudget(t *testing.T) {
	const budget = 4096
	r := newRig(t, maxHeld(budget))
	address := r.serve("game", route.UDP)
	big := strings.Repeat("x", 1000)
	c := dialUDP(t, address)
	for range 5 {
		write(t, c, big)
	}
	r.eventually("the fifth is dropped", func() bool { return r.metric("dormouse_resolver_dropped_datagrams_total", nil) == 1 })
	// There is no room for another client, unless a server is up for it.
	write(t, dialUDP(t, address), big)
	r.eventually("another client is refused", func() bool {
		return r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": "too_many_bytes"}) == 1
	})
	r.queued(1)
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	for range 4 {
		hear(t, c, "re:"+big)
	}
	r.eventually("everything is given back", func() bool { return r.server.Held.Used() == 0 })
}

func TestWhatIsHeldElsewhereKeepsNobodyFromAServerThatIsUp(t *testing.T) {
	const budget = 4096
	r := newRig(t, maxHeld(budget))
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	play(t, dialUDP(t, address), "warm")
	r.phase(v1alpha1.PhaseAwake)
	r.eventually("nothing is held", func() bool { return r.server.Held.Used() == 0 })
	r.server.Held.Force(budget)
	play(t, dialUDP(t, address), "x")
	r.server.Held.Give(budget)
	r.eventually("everything is given back", func() bool { return r.server.Held.Used() == 0 })
}

// fillShare has clients of a service held until they have all that it may hold.
func (r *rig) fillShare(uid types.UID, address, first string) {
	r.t.Helper()
	// One that finds no room for a moment asks for none again, so there are more than would do.
	for range 40 {
		c := dialTCP(r.t, address)
		go func() { _, _ = io.WriteString(c, first+strings.Repeat("x", 128<<10)) }()
	}
	r.server.mu.Lock()
	held := r.server.services[uid].Held
	r.server.mu.Unlock()
	r.eventually("all is held that may be", held.Full)
}

func TestAServiceThatHoldsMuchLeavesRoomForOthers(t *testing.T) {
	r := newRig(t, maxHeld(1<<20))
	address := r.serve("game", route.TCP)
	login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, minecraftServer(minecraftwire.Status{Capacity: 1}))
	other := func(name string, phase v1alpha1.Phase, backends ...route.Backend) (tcp, udp string) {
		n := r.route
		n.UID, n.Name, n.Service, n.Phase = types.UID(name), name, name, phase
		n.Ports = []route.Port{
			{Name: "game", Network: route.TCP, Protocol: v1alpha1.ProtocolMinecraft, ResolverPort: int32(freePort(t, route.TCP)), Backends: backends},
			{Name: "voice", Network: route.UDP, Protocol: v1alpha1.ProtocolUDP, ResolverPort: int32(freePort(t, route.UDP))},
		}
		r.server.Update(&n)
		return fmt.Sprintf("127.0.0.1:%d", n.Ports[0].ResolverPort), fmt.Sprintf("127.0.0.1:%d", n.Ports[1].ResolverPort)
	}
	tcp, udp := other("asleep", v1alpha1.PhaseAsleep)
	up, _ := other("up", v1alpha1.PhaseAwake, serving(server, "a"))
	r.fillShare(r.route.UID, address, "")

	write(t, dialTCP(t, tcp), login)
	write(t, dialUDP(t, udp), "hello")
	r.eventually("clients of another service are held", func() bool {
		s := r.server.Sessions("asleep").Services
		return len(s) == 1 && s[0].Queued == 2
	})
	c := dialTCP(t, up)
	write(t, c, login)
	expect(t, c, login)
	if got := r.refused(proto.TooManyBytes); got != 0 {
		t.Errorf("%v were refused", got)
	}
}

// What a client says at a front it says to the front's share. It must not get to a service past
// the service's own.
func TestAServiceBehindAFrontThatHoldsMuchLeavesRoomForOthers(t *testing.T) {
	s := newShared(t, maxHeld(1<<20))
	s.service("full", v1alpha1.ProtocolMinecraft, "full.example.com")
	s.service("other", v1alpha1.ProtocolMinecraft, "other.example.com")
	s.fillShare("uid-full", s.address, login("full.example.com"))
	s.eventually("more are refused", func() bool {
		write(t, dialTCP(t, s.address), login("full.example.com"))
		return s.refused("full", proto.TooManyBytes) > 0
	})
	write(t, dialTCP(t, s.address), login("other.example.com"))
	s.eventually("a client of another service is held", func() bool { return s.sessionsOf("other").Queued == 1 })
	s.server.Close()
	if used := s.server.Held.Used(); used != 0 {
		t.Errorf("%d bytes are held still", used)
	}
}

func TestWhoGoesAwayGivesBackWhatWasHeld(t *testing.T) {
	r := newRig(t, udpIdle(100*time.Millisecond))
	tcp, udp := r.serve("tcp", route.TCP), r.serve("udp", route.UDP)
	c := dialTCP(t, tcp)
	write(t, c, "hello")
	write(t, dialUDP(t, udp), "hello")
	r.eventually("both are held", func() bool { return r.server.Held.Used() == 5+4+5 })
	_ = c.SetLinger(0)
	_ = c.Close()
	r.eventually("everything is given back", func() bool { return r.server.Held.Used() == 0 })
}
