package dataplane

import (
	"crypto/rand"
	"crypto/sha256"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func maxHeld(n int64) rigOption { return func(o *Options) { o.MaxHeldBytes = n } }

func TestHeldConnectionsShareOneBudgetAndLoseNothing(t *testing.T) {
	const clients, each, budget = 8, 256 << 10, 64 << 10
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
	r.eventually("the budget is used up", func() bool { return r.server.Held.Used() == budget })
	for _, name := range []string{"dormouse_resolver_held_bytes", "dormouse_resolver_max_held_bytes"} {
		if got := r.metric(name, nil); got != budget {
			t.Errorf("%s is %v, want %d", name, got, budget)
		}
	}
	r.never("more is held than that", 50*time.Millisecond, func() bool { return r.server.Held.Used() > budget })
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
