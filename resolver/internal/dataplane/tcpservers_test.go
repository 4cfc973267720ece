package dataplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// shortListener listens with the shortest queue that there is: it takes a
// connection or two, and the kernel drops what the others send.
func shortListener(t *testing.T, address string) (stop func()) {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _ = unix.Close(fd) })
	t.Cleanup(stop)
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}),
		unix.Listen(fd, 0),
	); err != nil {
		t.Fatal(err)
	}
	return stop
}

func TestAServerThatCrashesBeforeItTakesItsClientsCostsNoneOfThem(t *testing.T) {
	const clients = 20
	r := newRig(t)
	address := r.serve("game", route.TCP)
	var all []*net.TCPConn
	for i := range clients {
		c := dialTCP(t, address)
		write(t, c, fmt.Sprintf("client %02d", i))
		all = append(all, c)
	}
	r.queued(clients)
	server := freeAddress(t, route.TCP)
	crash := shortListener(t, server)
	r.backend(server, true)
	r.eventually("a client is delivered", func() bool { return r.sessions().Sessions > 0 })
	crash()
	listenTCP(t, server, echo)
	served := 0
	for i, c := range all {
		got := make([]byte, 9)
		if _, err := io.ReadFull(c, got); err != nil {
			continue
		}
		served++
		if want := fmt.Sprintf("client %02d", i); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	// Those that the server had taken are gone with it.
	if served < clients-3 {
		t.Errorf("%d of %d clients were served by the next attempt", served, clients)
	}
	r.queued(0)
}

func TestAServingBackendThatRefusesKeepsItsClientsHeld(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	var clients []*net.TCPConn
	for range 50 {
		clients = append(clients, dialTCP(t, address))
	}
	r.queued(50)
	server := freeAddress(t, route.TCP)
	r.backend(server, true)
	// Kubernetes calls it serving, yet it is not there.
	r.never("a client is let go", 100*time.Millisecond, func() bool { return r.sessions().Queued != 50 })
	listenTCP(t, server, tag("hi"))
	for _, c := range clients {
		expect(t, c, "hi")
	}
}

func TestAPodWithAReadinessProbeGetsClientsOnlyOnceItServes(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	server := freeAddress(t, route.TCP)
	var taken atomic.Int32
	listenTCP(t, server, func(c *net.TCPConn) {
		taken.Add(1)
		tag("hi")(c)
	})
	r.backend(server, false)
	c := dialTCP(t, address)
	r.eventually("the wake call is answered", func() bool { return r.metric("dormouse_resolver_wake_calls_total", nil) > 0 })
	r.never("a pod that isn't ready gets a connection", 50*time.Millisecond, func() bool { return taken.Load() != 0 })
	r.backend(server, true)
	expect(t, c, "hi")
}

func TestATerminatingBackendGetsNobody(t *testing.T) {
	cases := map[string][]func(*route.Port){"found by a connect": nil, "found by a readiness probe": {probed}}
	for name, more := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP, more...)
			old, next := freeAddress(t, route.TCP), freeAddress(t, route.TCP)
			listenTCP(t, old, tag("old"))
			listenTCP(t, next, tag("new"))
			r.change(func(rt *route.Route) {
				rt.Ports[0].Backends = []route.Backend{
					{Address: netip.MustParseAddrPort(old), Serving: true, Terminating: true},
					{Address: netip.MustParseAddrPort(next), Serving: true},
				}
			})
			expect(t, dialTCP(t, address), "new")
			r.phase(v1alpha1.PhaseAwake)
			for range 5 {
				expect(t, dialTCP(t, address), "new")
			}
		})
	}
}

func TestClientsAreSpreadOverTheServers(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	var backends []route.Backend
	for i := range 3 {
		server := freeAddress(t, route.TCP)
		listenTCP(t, server, tag(fmt.Sprintf("%d", i)))
		backends = append(backends, route.Backend{Address: netip.MustParseAddrPort(server), Serving: true})
	}
	r.change(func(rt *route.Route) { rt.Ports[0].Backends, rt.Phase = backends, v1alpha1.PhaseAwake })
	got := map[byte]int{}
	for range 9 {
		c := dialTCP(t, address)
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		got[b[0]]++
	}
	for i := range 3 {
		if got[byte('0'+i)] != 3 {
			t.Errorf("server %d got %d clients of 9", i, got[byte('0'+i)])
		}
	}
}

func TestAServerThatCannotBeReachedIsPassedOver(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	live, dead := freeAddress(t, route.TCP), freeAddress(t, route.TCP)
	listenTCP(t, live, tag("hi"))
	r.change(func(rt *route.Route) {
		rt.Phase = v1alpha1.PhaseAwake
		rt.Ports[0].Backends = []route.Backend{
			{Address: netip.MustParseAddrPort(dead), Serving: true},
			{Address: netip.MustParseAddrPort(live), Serving: true},
		}
	})
	for range 4 {
		expect(t, dialTCP(t, address), "hi")
	}
}
