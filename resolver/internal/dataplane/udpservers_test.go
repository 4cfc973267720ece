package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// servers sets the backends of each port; all of them serve.
func (r *rig) servers(backends ...route.Backend) {
	r.change(func(rt *route.Route) {
		for i := range rt.Ports {
			rt.Ports[i].Backends = backends
		}
	})
}

func serving(address string, pod types.UID) route.Backend {
	return route.Backend{Address: netip.MustParseAddrPort(address), Pod: pod, Serving: true}
}

// play sends some datagrams and hears the answers.
func play(t *testing.T, c *net.UDPConn, texts ...string) {
	t.Helper()
	for _, text := range texts {
		write(t, c, text)
		hear(t, c, "re:"+text)
	}
}

// Of two containers that run, one has bound its port.
func TestNoDatagramIsLostToAServerThatIsNotBound(t *testing.T) {
	const clients = 12
	r := newRig(t)
	address := r.serve("game", route.UDP)
	bound, late := freeAddress(t, route.UDP), freeAddress(t, route.UDP)
	listenUDP(t, bound)
	held := make([]*net.UDPConn, clients)
	for i := range held {
		held[i] = dialUDP(t, address)
		for j := range 3 {
			write(t, held[i], fmt.Sprintf("%d.%d", i, j))
		}
	}
	r.queued(clients)
	began := time.Now()
	r.servers(serving(late, "a"), serving(bound, "b"))
	for i, c := range held {
		for j := range 3 {
			hear(t, c, fmt.Sprintf("re:%d.%d", i, j))
		}
	}
	r.phase(v1alpha1.PhaseAwake)
	for i := range clients {
		play(t, dialUDP(t, address), fmt.Sprintf("later %d", i))
	}
	r.eventually("all are relayed", func() bool { s := r.sessions(); return s.Sessions == 2*clients && s.Queued == 0 })

	// It is tried by one client at a time, and once a second: the kernel says no
	// to the first few only.
	if got := r.metric("dormouse_resolver_refused_datagrams_total", nil); got > 3+time.Since(began).Seconds() {
		t.Errorf("%v datagrams were sent to a server that was not bound", got)
	}

	// Once it is bound it gets its share.
	second := listenUDP(t, late)
	r.eventually("new clients come to the second server", func() bool {
		play(t, dialUDP(t, address), "new")
		return len(second.all()) > 2
	})
}

func TestAPodIsReachedAtOneOfItsTwoAddresses(t *testing.T) {
	const clients = 10
	cases := map[string]struct{ four, six bool }{
		"a game that is bound to IPv4 only": {four: true},
		"a game that is bound to IPv6 only": {six: true},
		"a game that is bound to both":      {four: true, six: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.UDP)
			port := netip.MustParseAddrPort(freeAddress(t, route.UDP)).Port()
			four, six := fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("[::1]:%d", port)
			got := map[string]*udpServer{}
			if tc.four {
				got[four] = listenUDP(t, four)
			}
			if tc.six {
				got[six] = listenUDP(t, six)
			}
			r.phase(v1alpha1.PhaseAwake)
			r.servers(serving(four, "a"), serving(six, "a"))
			for i := range clients {
				play(t, dialUDP(t, address), fmt.Sprint(i), "more")
			}
			if tc.four && tc.six && len(got[six].all()) > 0 {
				t.Error("one pod counts as two servers")
			}
		})
	}
}

// A server that took what was held and is gone before it answers.
func TestWhatAServerNeverAnsweredIsSentToTheNext(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	silent, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server)))
	if err != nil {
		t.Fatal(err)
	}
	c := dialUDP(t, address)
	write(t, c, "one")
	write(t, c, "two")
	r.queued(1)
	r.backend(server, true)
	buf := make([]byte, 64)
	for _, want := range []string{"one", "two"} {
		if n, err := silent.Read(buf); err != nil || string(buf[:n]) != want {
			t.Fatalf("the first server got %q, %v", buf[:n], err)
		}
	}
	r.eventually("the client is relayed", func() bool { s := r.sessions(); return s.Sessions == 1 && s.Queued == 0 })
	_ = silent.Close()
	write(t, c, "lost")
	r.queued(1)
	listenUDP(t, server)
	hear(t, c, "re:one")
	hear(t, c, "re:two")
}

// A pod that was ending when it was granted is gone with what it was sent.
func TestWhatALostServerNeverAnsweredIsSentToTheNext(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	ending, next := freeAddress(t, route.UDP), freeAddress(t, route.UDP)
	silent, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(ending)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	c := dialUDP(t, address)
	write(t, c, "one")
	write(t, c, "two")
	r.queued(1)
	r.servers(serving(ending, "a"))
	r.eventually("the client is relayed", func() bool { s := r.sessions(); return s.Sessions == 1 && s.Queued == 0 })
	r.servers()
	r.queued(1)
	r.servers(serving(next, "b"))
	got := listenUDP(t, next)
	hear(t, c, "re:one")
	hear(t, c, "re:two")
	if all := got.all(); !slices.Equal(all, []string{"one", "two"}) {
		t.Errorf("the next server got %v", all)
	}
	r.eventually("one session is left", func() bool { s := r.sessions(); return s.Sessions == 1 && s.Queued == 0 })
}

// The server's address becomes another pod's while the last of what was held is on its
// way there: what the client says next is not that pod's, as if it was in the game.
func TestASessionWhoseServerIsLostMeanwhileIsNotLive(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	old, next := freeAddress(t, route.UDP), freeAddress(t, route.UDP)
	first := listenUDP(t, old)
	starting := serving(old, "a")
	starting.Serving = false
	r.servers(starting)
	c := dialUDP(t, address)
	write(t, c, "one")
	r.queued(1)
	socket := r.server.services[r.route.UID].portNamed("game").socket.Load()
	s := socket.all()[0]
	s.mu.Lock()
	ticket := s.ticket
	s.mu.Unlock()
	if !ticket.Leave() {
		t.Fatal("the client does not wait")
	}
	if err := s.connect(netip.MustParseAddrPort(old)); err != nil {
		t.Fatal(err)
	}
	s.lose(map[netip.AddrPort]bool{netip.MustParseAddrPort(old): true})
	s.flush()
	write(t, c, "two")
	r.eventually("what comes is kept", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.queue) > 0
	})
	r.servers(serving(next, "b"))
	second := listenUDP(t, next)
	socket.loop.Do(s.move)
	hear(t, c, "re:one")
	hear(t, c, "re:two")
	if got := first.all(); len(got) > 0 {
		t.Errorf("the lost server got %v", got)
	}
	if got := second.all(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the next server got %v", got)
	}
}

func TestAUDPSessionEndsWithItsServersAddress(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	old, next := freeAddress(t, route.UDP), freeAddress(t, route.UDP)
	first, second := listenUDP(t, old), listenUDP(t, next)
	r.phase(v1alpha1.PhaseAwake)
	r.servers(serving(old, "a"))
	c := dialUDP(t, address)
	play(t, c, "one")
	// A pod that ends, or is not ready, keeps its clients.
	ending := serving(old, "a")
	ending.Serving, ending.Terminating = false, true
	r.servers(ending, serving(next, "b"))
	play(t, c, "two")
	r.servers(serving(next, "b"))
	// The second answer is a live session's; the first may be to a probe.
	play(t, c, "three", "and")
	if got := first.all(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the first server got %v", got)
	}
	// Another pod has the address now, and knows nothing of the session.
	r.servers(serving(next, "c"))
	play(t, c, "four")
	second.mu.Lock()
	if len(second.from) != 2 {
		t.Errorf("the second server saw %d peers, want 2", len(second.from))
	}
	second.mu.Unlock()
	// No pod at all: what comes wakes the service.
	asked := r.operator.count()
	r.servers()
	r.eventually("nobody is relayed", func() bool { return r.sessions().Sessions == 0 })
	write(t, c, "five")
	r.queued(1)
	r.eventually("the operator is asked", func() bool { return r.operator.count() > asked })
	r.servers(serving(old, "d"))
	hear(t, c, "re:five")
}

// A port that has moved keeps its sessions on the old socket.
func TestASessionOfAClosedPortEndsWithItsServersAddress(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.phase(v1alpha1.PhaseAwake)
	r.servers(serving(server, "a"))
	c := dialUDP(t, address)
	play(t, c, "one")
	r.change(func(rt *route.Route) { rt.Ports[0].ResolverPort = int32(freePort(t, route.UDP)) })
	play(t, c, "two")
	r.servers()
	r.eventually("nobody is relayed", func() bool { return r.sessions().Sessions == 0 })
}

// A server may be lost between the moment it is found and the one a client gets it.
func TestNoSessionGoesToAServerThatWasLostBeforeItWasGranted(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP)
	server := netip.MustParseAddrPort(freeAddress(t, route.UDP))
	listenUDP(t, server.String())
	c := dialUDP(t, address)
	write(t, c, "one")
	r.queued(1)
	var s *udpSession
	for _, sv := range r.server.services {
		for _, p := range sv.ports {
			s = p.socket.Load().find(c.LocalAddr().(*net.UDPAddr).AddrPort())
		}
	}
	if got := s.Probe(t.Context(), server); got != hold.Failed {
		t.Errorf("a probe of an address that is no pod's is %v, want Failed", got)
	}
	r.servers(serving(server.String(), "a"))
	hear(t, c, "re:one")
}
