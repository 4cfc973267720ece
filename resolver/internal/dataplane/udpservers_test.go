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

// A pod that was ending when a client was released to it is gone with what it was sent.
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
