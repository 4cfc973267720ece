package dataplane

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/objectmetrics"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

func TestMain(m *testing.M) {
	if os.Getenv(hostEnv) != "" {
		beHost()
		return
	}
	if os.Getenv(attackEnv) != "" {
		attack()
		return
	}
	// Tests that run in parallel wait most of the time, so that it takes more of them
	// than there are processors. The command line's own -parallel comes later, and wins.
	_ = flag.Set("test.parallel", "8")
	goleak.VerifyTestMain(m,
		// It ends once the kept connections have been idle for long.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		// The loops are the process's, as the runtime's poller is.
		goleak.IgnoreAnyFunction("dormouse.dev/dormouse/resolver/internal/loop.(*Loop).turn"))
}

// patience bounds what should happen at once on a busy machine.
const patience = 10 * time.Second

// operator is a wake endpoint on loopback.
type operator struct {
	*httptest.Server
	mu       sync.Mutex
	calls    []informerapi.WakeRequest
	times    []time.Time
	inFlight atomic.Int32
	overlap  atomic.Bool
	// answer may be replaced before clients come.
	answer func(w http.ResponseWriter, call int)
}

func accept(phase v1alpha1.Phase) func(http.ResponseWriter, int) {
	return func(w http.ResponseWriter, _ int) {
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(informerapi.WakeResponse{Phase: string(phase), Replicas: 1})
	}
}

// asked tells whether a service was to be woken.
func (o *operator) asked(service string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.calls, func(c informerapi.WakeRequest) bool { return c.Svc == service })
}

func newOperator(t testing.TB) *operator {
	o := &operator{answer: accept(v1alpha1.PhaseWaking)}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != informerapi.WakePath {
			return
		}
		if o.inFlight.Add(1) > 1 {
			o.overlap.Store(true)
		}
		defer o.inFlight.Add(-1)
		var call informerapi.WakeRequest
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Errorf("a wake call could not be read: %v", err)
		}
		if got := r.Header.Get("Authorization"); got != "Bearer the-token" {
			t.Errorf("a wake call has the authorization %q", got)
		}
		o.mu.Lock()
		o.calls = append(o.calls, call)
		o.times = append(o.times, time.Now())
		n := len(o.calls)
		answer := o.answer
		o.mu.Unlock()
		answer(w, n)
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *operator) set(answer func(http.ResponseWriter, int)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

func (o *operator) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.calls)
}

func (o *operator) all() []informerapi.WakeRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]informerapi.WakeRequest(nil), o.calls...)
}

// rig is a data plane with one route.
type rig struct {
	t        testing.TB
	operator *operator
	server   *Server
	metrics  prometheus.Gatherer
	route    route.Route
}

type rigOption func(*Options)

func onAll(o *Options)                  { o.Host = "" }
func udpIdle(d time.Duration) rigOption { return func(o *Options) { o.UDPIdle = d } }
func maxUDP(n int) rigOption            { return func(o *Options) { o.MaxUDPSessions = n } }

func newRig(t testing.TB, more ...rigOption) *rig {
	o := newOperator(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("the-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := wake.New(o.URL, tokenfile.New(file))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	counts, gatherer := metrics.New(registry), objectmetrics.NewGatherer(registry)
	gatherer.Add(counts)
	opts := Options{Host: "127.0.0.1", Waker: client, Metrics: counts, Log: logr.Discard()}
	for _, option := range more {
		option(&opts)
	}
	s := New(opts)
	t.Cleanup(func() {
		s.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = client.Start(ctx) // closes the kept connections
	})
	return &rig{
		t: t, operator: o, server: s, metrics: gatherer,
		route: route.Route{
			UID: "uid-1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: v1alpha1.PhaseAsleep,
			Hold: route.Hold{Timeout: time.Minute, MaxConnections: 1000, MaxBytes: 64 << 10},
		},
	}
}

// change shows the data plane a new version of the route.
func (r *rig) change(with func(*route.Route)) {
	with(&r.route)
	copied := r.route
	copied.Ports = append([]route.Port(nil), r.route.Ports...)
	for i := range copied.Ports {
		copied.Ports[i].Backends = append([]route.Backend(nil), copied.Ports[i].Backends...)
	}
	r.server.Update(&copied)
}

// serve adds a port and gives the address on which the data plane listens.
func (r *rig) serve(name string, network route.Network, more ...func(*route.Port)) string {
	number := freePort(r.t, network)
	p := route.Port{Name: name, Network: network, Protocol: v1alpha1.Protocol(network), ResolverPort: int32(number)}
	for _, m := range more {
		m(&p)
	}
	r.change(func(rt *route.Route) { rt.Ports = append(rt.Ports, p) })
	for _, d := range r.server.Routes().Routes[0].Ports {
		if !d.Listening {
			r.t.Fatalf("port %s does not listen: %s", d.Name, d.Error)
		}
	}
	return fmt.Sprintf("127.0.0.1:%d", number)
}

func probed(p *route.Port) { p.Probed = true }

// backend sets the only backend of each port.
func (r *rig) backend(address string, serving bool) {
	r.change(func(rt *route.Route) {
		for i := range rt.Ports {
			rt.Ports[i].Backends = []route.Backend{{Address: netip.MustParseAddrPort(address), Serving: serving}}
		}
	})
}

func (r *rig) phase(p v1alpha1.Phase) { r.change(func(rt *route.Route) { rt.Phase = p }) }

func (r *rig) sessions() informerapi.Sessions {
	for _, s := range r.server.Sessions().Services {
		if s.UID == string(r.route.UID) {
			return s
		}
	}
	return informerapi.Sessions{}
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	if !within(patience, ok) {
		r.t.Fatalf("it never came to be that %s", what)
	}
}

// never watches for a while that something does not happen.
func (r *rig) never(what string, while time.Duration, happened func() bool) {
	r.t.Helper()
	if within(while, happened) {
		r.t.Errorf("it came to be that %s", what)
	}
}

// within looks each millisecond whether something is so.
func within(d time.Duration, ok func() bool) bool {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(d); time.Now().Before(deadline); <-ticker.C {
		if ok() {
			return true
		}
	}
	return ok()
}

func (r *rig) queued(n int32) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d clients are held", n), func() bool { return r.sessions().Queued == n })
}

// metric is the sum of a metric's series that have the labels.
func (r *rig) metric(name string, labels map[string]string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	var sum float64
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			for k, v := range labels {
				if has[k] != v {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()) + float64(m.GetSummary().GetSampleCount())
		}
	}
	return sum
}
