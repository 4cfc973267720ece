package dataplane

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/hold"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// balanced lets all clients go through the resolver, which chooses their servers.
func (r *rig) balanced(policy v1alpha1.Balance) {
	r.change(func(rt *route.Route) { rt.Balance, rt.Phase = policy, v1alpha1.PhaseAwake })
}

// fleet is three game servers, a to c, that say their names and echo.
func (r *rig) fleet() (backends []route.Backend) {
	for _, name := range []string{"a", "b", "c"} {
		server := freeAddress(r.t, route.TCP)
		listenTCP(r.t, server, tag(name))
		backends = append(backends, serving(server, types.UID("pod-"+name)))
	}
	r.servers(backends...)
	return backends
}

// players lets a server report.
func (r *rig) players(name string, current, capacity int) {
	r.server.Players(r.route.UID, types.UID("pod-"+name), &route.Players{Current: current, Capacity: capacity})
}

// placed is a client and the server that it is on.
type placed struct {
	*net.TCPConn
	on string
}

// come connects so many clients one after the other, each of which says something
// and hears it again.
func (r *rig) come(address string, n int) []placed {
	r.t.Helper()
	var all []placed
	for i := range n {
		c := dialTCP(r.t, address)
		all = append(all, placed{c, r.greeted(c, fmt.Sprintf("guest %d", i))})
	}
	return all
}

// greeted says something to a server, checks that it comes back, and tells which
// server it was.
func (r *rig) greeted(c *net.TCPConn, text string) string {
	r.t.Helper()
	name := make([]byte, 1)
	if _, err := io.ReadFull(c, name); err != nil {
		r.t.Fatal(err)
	}
	write(r.t, c, text)
	expect(r.t, c, text)
	return string(name)
}

func on(all []placed) string {
	var names []string
	for _, g := range all {
		names = append(names, g.on)
	}
	return strings.Join(names, "")
}

func counts(text string) map[string]int {
	n := map[string]int{}
	for _, c := range text {
		n[string(c)]++
	}
	return n
}

func TestClientsGoToTheEmptiestOrTheFullestServer(t *testing.T) {
	cases := map[string]struct {
		policy v1alpha1.Balance
		come   int
		want   map[string]int
	}{
		"Spread":                  {v1alpha1.BalanceSpread, 9, map[string]int{"a": 2, "b": 5, "c": 2}},
		"Packed":                  {v1alpha1.BalancePacked, 7, map[string]int{"a": 6, "c": 1}},
		"Packed while there is 1": {v1alpha1.BalancePacked, 1, map[string]int{"c": 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP, probed)
			r.balanced(tc.policy)
			r.fleet()
			r.players("a", 4, 10)
			r.players("b", 1, 10)
			r.players("c", 4, 5)
			// No report comes meanwhile: what the resolver gave out counts.
			if name == "Spread" {
				r.players("c", 4, 10)
			}
			all := r.come(address, tc.come)
			if diff := cmp.Diff(tc.want, counts(on(all))); diff != "" {
				t.Errorf("clients by server (-want +got):\n%s", diff)
			}
			// Each stays with its server, whatever is reported.
			r.players("a", 10, 10)
			r.players("b", 10, 10)
			r.players("c", 10, 10)
			for i, g := range all {
				write(t, g, fmt.Sprintf("still %d", i))
				expect(t, g, fmt.Sprintf("still %d", i))
			}
			sent := 0
			for i := range all {
				sent += len(fmt.Sprintf("guest %d", i)) + len(fmt.Sprintf("still %d", i))
			}
			for direction, want := range map[string]int{"to_server": sent, "to_client": sent + len(all)} {
				r.eventually(fmt.Sprintf("%d bytes are counted %s", want, direction), func() bool {
					return r.metric("dormouse_resolver_bytes_total", map[string]string{"direction": direction}) == float64(want)
				})
			}
		})
	}
}

func TestClientsWaitWhileAllServersAreFull(t *testing.T) {
	t.Parallel()
	for _, readiness := range []string{"probed", "by connect"} {
		t.Run(readiness, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var more []func(*route.Port)
			if readiness == "probed" {
				more = append(more, probed)
			}
			address := r.serve("game", route.TCP, more...)
			r.balanced(v1alpha1.BalancePacked)
			r.fleet()
			for _, name := range []string{"a", "b", "c"} {
				r.players(name, 0, 2)
			}
			all := r.come(address, 6)
			if diff := cmp.Diff(map[string]int{"a": 2, "b": 2, "c": 2}, counts(on(all))); diff != "" {
				t.Fatalf("clients by server (-want +got):\n%s", diff)
			}
			for _, name := range []string{"a", "b", "c"} {
				r.players(name, 2, 2)
			}
			late := dialTCP(t, address)
			r.queued(1)
			r.never("a full server gets a client", 50*time.Millisecond, func() bool { return r.sessions().Queued != 1 })
			if readiness == "probed" {
				// Waking makes no room, and each call is a write.
				r.never("the operator is asked each second", 1300*time.Millisecond, func() bool { return r.operator.count() > 1 })
			}
			// That a client leaves doesn't make room before the game says so, but the
			// report does.
			leaver := slices.IndexFunc(all, func(g placed) bool { return g.on == "b" })
			_ = all[leaver].Close()
			r.players("b", 1, 2)
			if got := r.greeted(late, "late"); got != "b" {
				t.Errorf("who waited is on %s, want b", got)
			}
			// Who is sent away for want of room is told so in time.
			r.change(func(rt *route.Route) { rt.Hold.Timeout = 50 * time.Millisecond })
			expectEnd(t, dialTCP(t, address))
			if got := r.refused("timeout"); got != 1 {
				t.Errorf("%v clients refused for the time, want 1", got)
			}
		})
	}
}

// Which server answers first when none is known to be up is no reason to choose it.
func TestTheFirstClientGetsTheFullestServer(t *testing.T) {
	for range 5 {
		r := newRig(t)
		address := r.serve("game", route.TCP)
		r.balanced(v1alpha1.BalancePacked)
		r.fleet()
		for i, name := range []string{"a", "b", "c"} {
			r.players(name, 1+i, 10)
		}
		if got := on(r.come(address, 2)); got != "cc" {
			t.Errorf("the first two are on %s, want the fullest server, c", got)
		}
	}
}

func TestAClientThatLeavesBeforeItIsReportedMakesRoomAtOnce(t *testing.T) {
	for readiness, more := range map[string][]func(*route.Port){"probed": {probed}, "by connect": nil} {
		t.Run(readiness, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP, more...)
			r.balanced(v1alpha1.BalanceSpread)
			r.servers(r.fleet()[0])
			r.players("a", 0, 1)
			first := r.come(address, 1)
			late := dialTCP(t, address)
			r.queued(1)
			r.never("the full server gets a client", 50*time.Millisecond, func() bool { return r.sessions().Queued != 1 })
			_ = first[0].Close()
			if !within(patience/2, func() bool { return r.sessions().Queued == 0 }) {
				t.Fatal("the room that was made is not given on")
			}
			if got := r.greeted(late, "late"); got != "a" {
				t.Errorf("who waited is on %s, want a", got)
			}
		})
	}
}

func TestServersWithoutPlayersCountByTheirConnections(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	r.balanced(v1alpha1.BalanceSpread)
	r.fleet()
	all := r.come(address, 6)
	if diff := cmp.Diff(map[string]int{"a": 2, "b": 2, "c": 2}, counts(on(all))); diff != "" {
		t.Fatalf("clients by server (-want +got):\n%s", diff)
	}
	for _, g := range all {
		if g.on == "c" {
			_ = g.Close()
		}
	}
	r.eventually("two are gone", func() bool { return r.sessions().Sessions == 4 })
	if got := on(r.come(address, 2)); got != "cc" {
		t.Errorf("the next are on %s, want both on the empty server", got)
	}
}

func TestADrainingServerKeepsItsClientsAndGetsNoOther(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	r.balanced(v1alpha1.BalancePacked)
	backends := r.fleet()
	r.players("a", 5, 10)
	r.players("b", 3, 10)
	old := r.come(address, 1)[0]
	backends[0].Terminating = true
	r.servers(backends...)
	if got := on(r.come(address, 3)); old.on != "a" || got != "bbb" {
		t.Errorf("first %s, then %s; want a, and none there while it drains", old.on, got)
	}
	write(t, old, "still here")
	expect(t, old, "still here")
	backends[0].Terminating = false
	r.servers(backends...)
	if got := on(r.come(address, 1)); got != "b" && got != "a" {
		t.Errorf("after it was taken back the next is on %s", got)
	}
}

// Those who wait for a sleeping service are shared out when it wakes.
func TestWhoWasHeldIsSharedOut(t *testing.T) {
	const clients = 30
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	r.change(func(rt *route.Route) { rt.Balance = v1alpha1.BalancePacked })
	var held []*net.TCPConn
	for i := range clients {
		c := dialTCP(t, address)
		write(t, c, fmt.Sprintf("held %02d", i))
		held = append(held, c)
	}
	r.queued(clients)
	for _, name := range []string{"a", "b", "c"} {
		// Reports may come before the addresses do.
		r.players(name, 0, 10)
	}
	r.fleet()
	r.phase(v1alpha1.PhaseWaking)
	var got strings.Builder
	for i, c := range held {
		name := make([]byte, 1)
		if _, err := io.ReadFull(c, name); err != nil {
			t.Fatal(err)
		}
		got.Write(name)
		expect(t, c, fmt.Sprintf("held %02d", i))
	}
	if diff := cmp.Diff(map[string]int{"a": 10, "b": 10, "c": 10}, counts(got.String())); diff != "" {
		t.Errorf("clients by server (-want +got):\n%s", diff)
	}
	r.queued(0)
}

func TestUDPSessionsHaveSeatsAndStick(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP, probed)
	r.balanced(v1alpha1.BalancePacked)
	var servers []*udpServer
	var backends []route.Backend
	for _, name := range []string{"a", "b"} {
		at := freeAddress(t, route.UDP)
		servers = append(servers, listenUDP(t, at))
		backends = append(backends, serving(at, types.UID("pod-"+name)))
	}
	r.servers(backends...)
	r.players("a", 0, 2)
	r.players("b", 0, 10)
	var all []*net.UDPConn
	for i := range 3 {
		c := dialUDP(t, address)
		play(t, c, fmt.Sprint("first ", i))
		all = append(all, c)
	}
	for i, c := range all {
		play(t, c, fmt.Sprint("second ", i))
	}
	want := [][]string{{"first 0", "first 1", "second 0", "second 1"}, {"first 2", "second 2"}}
	if diff := cmp.Diff(want, [][]string{servers[0].all(), servers[1].all()}); diff != "" {
		t.Errorf("datagrams by server (-want +got):\n%s", diff)
	}
	// A session that ends leaves its slot.
	r.change(func(rt *route.Route) { rt.Ports[0].Backends = rt.Ports[0].Backends[1:] })
	r.change(func(rt *route.Route) { rt.Ports[0].Backends = backends })
	r.eventually("the lost server's sessions are over", func() bool { return r.sessions().Sessions == 1 })
	play(t, dialUDP(t, address), "anew")
	if got := servers[0].all(); got[len(got)-1] != "anew" {
		t.Errorf("the server that has room again got %q", got)
	}
}

func TestAFailingServerGivesItsSeatsBack(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	r.balanced(v1alpha1.BalancePacked)
	dead := freeAddress(t, route.TCP)
	backends := append([]route.Backend{{Address: netip.MustParseAddrPort(dead), Pod: "pod-dead", Serving: true}}, r.fleet()[0])
	r.servers(backends...)
	r.players("dead", 3, 4)
	r.players("a", 0, 4)
	if got := on(r.come(address, 3)); got != "aaa" {
		t.Fatalf("clients are on %s", got)
	}
	r.server.mu.Lock()
	sv := r.server.services[r.route.UID]
	r.server.mu.Unlock()
	listenTCP(t, dead, tag("d"))
	r.eventually("the server that failed gets the one client that it has room for", func() bool {
		g, ok := sv.Queue.Pick(hold.PortID{Name: "game", Network: route.TCP})
		if ok {
			defer g.Slot.Leave()
		}
		return ok && g.Address == netip.MustParseAddrPort(dead)
	})
}
