package dataplane

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/objectmetrics"
	resolvermetrics "dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// hostEnv makes the test's program a process with a data plane and nothing else: what
// attackers cost can be told from what their victim costs, and each process may open
// 20,000 files.
const hostEnv = "DORMOUSE_TEST_DATAPLANE_HOST"

// maxHostSessions is how many UDP sessions it may have.
const maxHostSessions = 2000

// hosted is what a host is told, a line each: a route to serve, or nothing to be
// told how it fares.
type hosted struct {
	Route *route.Route `json:"route,omitempty"`
	// Free makes Go give back memory that nobody uses.
	Free bool `json:"free,omitempty"`
}

// fares is its answer.
type fares struct {
	Error string
	// Memory is what Go has of the system and has not given back.
	Memory     uint64
	Goroutines uint64
	Wakes      int
	Clients    int
	// Held and Relayed are clients of the service that is attacked.
	Held, Relayed int32
	HeldBytes     int64
	Refused       map[proto.Reason]int
	Answered      int
}

type countingWaker struct{ calls chan struct{} }

func (w countingWaker) Wake(context.Context, string, string, int) wake.Result {
	select {
	case w.calls <- struct{}{}:
	default:
	}
	return wake.Result{Outcome: wake.Accepted, Phase: v1alpha1.PhaseWaking}
}

func beHost() {
	registry := prometheus.NewRegistry()
	counts, gatherer := resolvermetrics.New(registry), objectmetrics.NewGatherer(registry)
	gatherer.Add(counts)
	waker := countingWaker{make(chan struct{}, 1<<20)}
	plane := New(Options{MaxUDPSessions: maxHostSessions, Host: "127.0.0.1", Waker: waker, Metrics: counts, Log: logr.Discard()})
	defer plane.Close()
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var h hosted
		if err := in.Decode(&h); err != nil {
			return
		}
		var f fares
		if h.Route != nil {
			plane.Update(h.Route)
			for _, r := range plane.Routes(string(h.Route.UID)).Routes {
				f.Error += r.Ports[0].Error
			}
		} else {
			if h.Free {
				debug.FreeOSMemory()
			}
			f = howItFares(plane, gatherer)
			f.Wakes = len(waker.calls)
		}
		if err := out.Encode(f); err != nil {
			return
		}
	}
}

func howItFares(plane *Server, gatherer prometheus.Gatherer) fares {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/sched/goroutines:goroutines"},
	}
	metrics.Read(samples)
	f := fares{
		Memory: samples[0].Value.Uint64() - samples[1].Value.Uint64(), Goroutines: samples[2].Value.Uint64(),
		Clients: plane.Clients(), HeldBytes: plane.Held.Used(), Refused: map[proto.Reason]int{},
	}
	for _, s := range plane.Sessions(attacked).Services {
		f.Held, f.Relayed = s.Queued, s.Sessions
	}
	families, err := gatherer.Gather()
	if err != nil {
		f.Error = err.Error()
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch family.GetName() {
			case "dormouse_resolver_refused_clients_total":
				for _, l := range m.GetLabel() {
					if l.GetName() == "reason" {
						f.Refused[proto.Reason(l.GetValue())] += int(m.GetCounter().GetValue())
					}
				}
			case "dormouse_resolver_answered_queries_total":
				f.Answered += int(m.GetCounter().GetValue())
			}
		}
	}
	return f
}

// UIDs of the service that is attacked and of one that isn't.
const (
	attacked = "attacked"
	bystands = "bystands"
)

// host is such a process, seen from the test.
type host struct {
	t   testing.TB
	in  *json.Encoder
	out *json.Decoder
	// players are the bystanders.
	players []net.Conn
}

// newHost starts one, with a second service on which two play all the time.
func newHost(t testing.TB) *host {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), hostEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	h := &host{t: t, in: json.NewEncoder(in), out: json.NewDecoder(out)}
	tcp, udp := freeAddress(t, route.TCP), freeAddress(t, route.UDP)
	listenTCP(t, tcp, echo)
	listenUDP(t, udp)
	h.players = []net.Conn{
		from(t, "127.0.0.3", route.TCP, h.serve(bystands+"-tcp", v1alpha1.ProtocolTCP, awakeAt(tcp))),
		from(t, "127.0.0.3", route.UDP, h.serve(bystands+"-udp", v1alpha1.ProtocolUDP, awakeAt(udp))),
	}
	h.played()
	return h
}

func (h *host) ask(what hosted) (f fares) {
	h.t.Helper()
	if err := h.in.Encode(what); err != nil {
		h.t.Fatal(err)
	}
	if err := h.out.Decode(&f); err != nil {
		h.t.Fatal(err)
	}
	if f.Error != "" {
		h.t.Fatal(f.Error)
	}
	return f
}

func (h *host) fares() fares {
	h.t.Helper()
	return h.ask(hosted{})
}

func awakeAt(server string) func(*route.Route) {
	return func(r *route.Route) {
		r.Phase = v1alpha1.PhaseAwake
		r.Ports[0].Backends = []route.Backend{{Address: netip.MustParseAddrPort(server), Serving: true}}
	}
}

// serve adds a service with one port, and gives its address.
func (h *host) serve(uid string, protocol v1alpha1.Protocol, with ...func(*route.Route)) string {
	h.t.Helper()
	network := networkOf(protocol)
	number := freePort(h.t, network)
	r := &route.Route{
		UID: types.UID(uid), Namespace: "games", Name: uid, Service: uid, Phase: v1alpha1.PhaseAsleep,
		Hold: route.Hold{Timeout: time.Minute, MaxConnections: 1000, MaxBytes: 64 << 10},
	}
	r.Ports = []route.Port{{Name: "game", Protocol: protocol, Network: network, ResolverPort: int32(number), Probed: true}}
	for _, w := range with {
		w(r)
	}
	h.ask(hosted{Route: r})
	return fmt.Sprintf("127.0.0.1:%d", number)
}

// played reports whether those who play elsewhere go on at once, and lose nothing.
func (h *host) played() {
	h.t.Helper()
	for _, c := range h.players {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	for range 20 {
		write(h.t, h.players[0], "x")
		expect(h.t, h.players[0], "x")
	}
	answered(h.t, h.players[1])
}

// answered reports whether a server answers a datagram. It is sent again where it gets lost.
func answered(t testing.TB, c net.Conn) {
	t.Helper()
	buf := make([]byte, 16)
	for range 10 {
		write(t, c, "x")
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := c.Read(buf); err == nil && string(buf[:n]) == "re:x" {
			return
		}
	}
	t.Fatal("nobody answers a bystander")
}

// before is how it fares when nothing has happened yet.
func (h *host) before() fares {
	h.t.Helper()
	return h.ask(hosted{Free: true})
}

// until waits for a host to fare as it should.
func (h *host) until(what string, ok func(fares) bool) (f fares) {
	h.t.Helper()
	if !within(3*patience, func() bool { f = h.fares(); return ok(f) }) {
		h.t.Fatalf("it never came to be that %s: %+v", what, f)
	}
	return f
}

// grownBy says how much memory a host has more than before, at most.
func (h *host) grownBy(before fares, most uint64) {
	h.t.Helper()
	if raceFactor > 1 {
		return // The detector's memory isn't the program's.
	}
	now := h.ask(hosted{Free: true})
	h.t.Logf("%d KiB and %d goroutines, before %d KiB and %d", now.Memory>>10, now.Goroutines, before.Memory>>10, before.Goroutines)
	if now.Memory > before.Memory+most {
		h.t.Errorf("memory has grown from %d to %d KiB, by more than %d", before.Memory>>10, now.Memory>>10, most>>10)
	}
}
