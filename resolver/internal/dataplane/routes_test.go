package dataplane

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestARemovedRouteRefusesWhoIsHeldAndLeavesWhoIsRelayed(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP)
	server := freeAddress(t, route.TCP)
	g := listenTCP(t, server, echo)
	relayed := dialTCP(t, address)
	write(t, relayed, "a")
	r.backend(server, true)
	expect(t, relayed, "a")
	// The next one is held: the server is gone for new connections.
	_ = g.Close()
	r.change(func(rt *route.Route) { rt.Ports[0].Backends = nil })
	held := dialTCP(t, address)
	r.queued(1)
	r.server.Remove(r.route.UID)
	expectGone(t, held)
	if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		_ = c.Close()
		t.Error("the port of a removed route still takes connections")
	}
	write(t, relayed, "b")
	expect(t, relayed, "b")
	if got := len(r.server.Sessions().Services); got != 0 {
		t.Errorf("%d services in /sessions, want none", got)
	}
	if got := r.server.Clients(); got != 1 {
		t.Errorf("%d clients are carried, want 1", got)
	}
	for _, name := range []string{"dormouse_resolver_held_clients", "dormouse_resolver_refused_clients_total", "dormouse_resolver_wake_calls_total"} {
		if got := r.metric(name, nil); got != 0 {
			t.Errorf("%s is still %v", name, got)
		}
	}
}

// An ElasticService may be deleted and made again, and so under another name.
func TestWhoIsRelayedCountsForTheNextRouteOfTheService(t *testing.T) {
	for _, network := range []route.Network{route.TCP, route.UDP} {
		t.Run(string(network), func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", network)
			server := freeAddress(t, network)
			if network == route.TCP {
				listenTCP(t, server, echo)
			} else {
				listenUDP(t, server)
			}
			r.backend(server, true)
			c, err := net.Dial(string(network), address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			write(t, c, "a")
			r.eventually("the client is relayed", func() bool { return r.sessions().Sessions == 1 })
			again := r.route
			for _, name := range []string{"lobby", "lobby-again"} {
				r.server.Remove(again.UID)
				if got := len(r.server.Sessions().Services); got != 0 {
					t.Errorf("%d services in /sessions while the route is gone, want none", got)
				}
				again.UID, again.Name, again.Ports = types.UID("uid-of-"+name), name, nil
				r.server.Update(&again)
				if got := r.server.Sessions(string(again.UID)).Services; len(got) != 1 || got[0].Sessions != 1 {
					t.Errorf("the next route has %+v, want one session", got)
				}
			}
			other := again
			other.UID, other.Service = "uid-other", "hall"
			r.server.Update(&other)
			if got := r.server.Sessions("uid-other").Services; len(got) != 0 {
				t.Errorf("another Service's route has %+v, want no session", got)
			}
		})
	}
}

// What is kept of routes that are gone has a bound: their clients.
func TestRoutesWithoutClientsLeaveNothing(t *testing.T) {
	var d departed
	of := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "arena", Name: strconv.Itoa(i)}
	}
	d.keep(of(0), &service.Activity{})
	if len(d.counts) != 0 {
		t.Error("a route without a client is kept")
	}
	for i := range 1000 {
		a := &service.Activity{}
		a.Relayed.Store(1)
		d.keep(of(i), a)
		a.Relayed.Store(0)
	}
	if n := len(d.counts); n > 2*reapLeast {
		t.Errorf("%d routes are kept once their clients are gone", n)
	}
}

func TestAPortThatCannotBeOpenedIsToldAndTriedAgain(t *testing.T) {
	r := newRig(t)
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	number := int32(occupied.Addr().(*net.TCPAddr).Port)
	r.change(func(rt *route.Route) {
		rt.Ports = []route.Port{{Name: "game", Network: route.TCP, Protocol: v1alpha1.ProtocolTCP, ResolverPort: number}}
	})
	p := r.server.Routes().Routes[0].Ports[0]
	if p.Listening || !strings.Contains(p.Error, "in use") {
		t.Errorf("a port that is taken shows as %+v", p)
	}
	_ = occupied.Close()
	r.eventually("the port is open", func() bool { return r.server.Routes().Routes[0].Ports[0].Listening })
	if p := r.server.Routes().Routes[0].Ports[0]; p.Error != "" {
		t.Errorf("a port that is open has the error %q", p.Error)
	}
}

func TestSessionsTellWhoIsCarried(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP)
	if got := r.server.Sessions().Services; len(got) != 0 {
		t.Errorf("a service without clients is listed: %+v", got)
	}
	c := dialTCP(t, address)
	r.queued(1)
	if s := r.sessions(); s.Sessions != 0 || time.Since(s.LastActive) > time.Second {
		t.Errorf("held: %+v", s)
	}
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("hi"))
	r.backend(server, true)
	expect(t, c, "hi")
	r.eventually("the client counts as a session", func() bool {
		s := r.sessions()
		return s.Sessions == 1 && s.Queued == 0
	})
	first := r.sessions().LastActive
	r.eventually("an open connection is active now", func() bool { return r.sessions().LastActive.After(first) })
	_ = c.Close()
	r.eventually("the connection is not active any more", func() bool {
		a := r.sessions()
		b := r.sessions()
		return a.Sessions == 0 && a.LastActive.Equal(b.LastActive)
	})
	ended := r.sessions().LastActive
	if ended.Before(first) {
		t.Errorf("the last client left at %s and was there at %s", ended, first)
	}
	r.never("lastActive moves without a client", 20*time.Millisecond, func() bool { return !r.sessions().LastActive.Equal(ended) })
	uid := string(r.route.UID)
	for _, asked := range []struct {
		uids []string
		want int
	}{{[]string{"another-uid"}, 0}, {[]string{"another-uid", uid}, 1}, {[]string{uid}, 1}, {nil, 1}} {
		if sessions, routes := r.server.Sessions(asked.uids...).Services, r.server.Routes(asked.uids...).Routes; len(sessions) != asked.want || len(routes) != asked.want {
			t.Errorf("asked for %q it tells of %+v and %+v, want %d of each", asked.uids, sessions, routes, asked.want)
		}
	}
}

func TestSeriesEndWithTheLastRouteOfAService(t *testing.T) {
	r := newRig(t)
	dialTCP(t, r.serve("game", route.TCP))
	r.queued(1)
	r.eventually("the wake call is answered", func() bool { return r.metric("dormouse_resolver_wake_calls_total", nil) > 0 })
	second := r.route
	second.UID, second.Name, second.Ports = "uid-2", "lobby-again", nil
	r.server.Update(&second)
	r.server.Remove(r.route.UID)
	taken := func() float64 { return r.metric("dormouse_resolver_clients_total", nil) }
	if taken() != 1 {
		t.Error("the series end while another route names the Service")
	}
	// It names another Service from now on.
	third := second
	third.Service = "hall"
	r.server.Update(&third)
	for _, name := range []string{
		"dormouse_resolver_clients_total", "dormouse_resolver_wake_calls_total",
		"dormouse_resolver_refused_clients_total", "dormouse_resolver_service_wake_seconds",
	} {
		if got := r.metric(name, map[string]string{"service": "lobby"}); got != 0 {
			t.Errorf("%s is still %v", name, got)
		}
	}
	r.server.Remove(third.UID)
	if len(r.server.named) != 0 {
		t.Errorf("%d names are left", len(r.server.named))
	}
}
