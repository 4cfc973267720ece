// Package metrics owns the resolver's metrics. They are labelled by service and
// protocol, never by client, and a service's series end with its route.
package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Direction of bytes and datagrams.
const (
	toServer = "to_server"
	toClient = "to_client"
)

// Stage is a part of the time from a client's arrival to its delivery.
type Stage string

// Stages of a wake, as the resolver sees them.
const (
	// StageAsked is from the first client's arrival to the wake call.
	StageAsked Stage = "asked"
	// StageAddress is from the wake call to the first address of a pod.
	StageAddress Stage = "address"
	// StageUp is from the address to a backend that is up.
	StageUp Stage = "up"
	// StageDelivered is from there to the first client's delivery.
	StageDelivered Stage = "delivered"
	// StageTotal is all of them.
	StageTotal Stage = "total"
)

// Metrics are all of them. A nil Metrics counts nothing.
type Metrics struct {
	held, sessions                            *prometheus.GaugeVec
	clients, answered                         *prometheus.CounterVec
	bytes, datagrams                          *prometheus.CounterVec
	refused, dropped, unsent, notBound, wakes *prometheus.CounterVec
	cutShort, ended                           *prometheus.CounterVec
	stages                                    *prometheus.HistogramVec
	woken                                     *prometheus.SummaryVec
	routes                                    prometheus.Gauge
	lostLines                                 prometheus.Counter
	registry                                  prometheus.Registerer

	mu sync.Mutex
	// services are the services that have ports. Searching each metric for one service's series
	// would cost as much as all services have.
	services map[serviceKey]*service
}

type serviceKey struct{ namespace, service string }

// service is a service that has ports. The metrics' lock guards it.
type service struct {
	key serviceKey
	// ports are a list, for they are few, and has is nil before the first series.
	ports *Port
	has   map[series]struct{}
	// gone is set once the service was forgotten. What is counted of it from then on is
	// discarded.
	gone bool
}

// series is one series of a metric: its label values after namespace and service.
type series struct {
	vec    vec
	values [2]string
}

type vec interface{ DeleteLabelValues(...string) bool }

// New registers the metrics.
func New(registry prometheus.Registerer) *Metrics {
	port := []string{"namespace", "service", "protocol"}
	with := func(more string) []string { return append(append([]string(nil), port...), more) }
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, port)
	}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: registry,
		services: map[serviceKey]*service{},
		held:     gauge("dormouse_resolver_held_clients", "Clients that are held until a server is up."),
		sessions: gauge("dormouse_resolver_sessions", "Clients that are relayed to a server."),
		clients:  counter("dormouse_resolver_clients_total", "TCP connections and UDP sessions taken.", port),
		answered: counter("dormouse_resolver_answered_queries_total",
			"Status queries and probes that were answered in a server's place.", port),
		bytes: counter("dormouse_resolver_bytes_total", "Bytes relayed, by direction.", with("direction")),
		datagrams: counter("dormouse_resolver_datagrams_total",
			"Datagrams relayed, by direction.", with("direction")),
		refused: counter("dormouse_resolver_refused_clients_total",
			"Clients that were sent away, by reason.", with("reason")),
		dropped: counter("dormouse_resolver_dropped_datagrams_total",
			"Datagrams that were dropped because a session, or the resolver, held as many bytes as it may.", port),
		unsent: counter("dormouse_resolver_unsent_datagrams_total",
			"Datagrams that could not be sent on and were lost, because there was no room or no way, or they were too large for it, by direction.", with("direction")),
		notBound: counter("dormouse_resolver_refused_datagrams_total",
			"Datagrams that a server refused because nothing was bound to its port.", port),
		cutShort: counter("dormouse_resolver_sessions_cut_short_total",
			"UDP sessions whose client fell silent while its server went on sending and new clients went straight to a server: "+
				"the client quit without a word, or its node sent it there, too, in the middle of the game.", port),
		ended: counter("dormouse_resolver_ended_clients_total",
			"Clients that were held or relayed and have gone, by what ended them: client or server, whichever was first; timeout, "+
				"where nothing was said for too long; idle, where an idle HTTP connection was closed for new clients go straight to a server; "+
				"drained, where the resolver stopped; gave_up, where a client went away while it was held; turn, where a client of a front goes on "+
				"with a request for another host; memory, where there was none for what it said of its next request. Those that were refused "+
				"are not among them.",
			with("end")),
		wakes: counter("dormouse_resolver_wake_calls_total",
			"Wake calls to the operator, by outcome.", []string{"namespace", "service", "outcome"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dormouse_resolver_wake_seconds",
			Help: "Time from the first held client to its delivery, by stage, of all services.",
			Buckets: []float64{
				.001, .0025, .005, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300,
			},
		}, []string{"protocol", "stage"}),
		woken: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name: "dormouse_resolver_service_wake_seconds",
			Help: "Time from the first held client to its delivery, and how often, of each service.",
		}, []string{"namespace", "service"}),
		routes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dormouse_resolver_routes", Help: "ElasticServices that are served.",
		}),
	}
	m.lostLines = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dormouse_resolver_lost_access_log_lines_total",
		Help: "Lines of the access log that were left out because it is written too slowly, or not at all.",
	})
	registry.MustRegister(m.lostLines, m.held, m.sessions, m.clients, m.answered, m.bytes, m.datagrams, m.refused, m.dropped,
		m.unsent, m.notBound, m.cutShort, m.ended, m.wakes, m.stages, m.woken, m.routes)
	return m
}

// find calls find with the labels of a service's series, and remembers that the service has it;
// false: the service is gone.
func (m *Metrics) find(of *service, v vec, find func(labels []string), values ...string) bool {
	s := series{vec: v}
	copy(s.values[:], values)
	m.mu.Lock()
	defer m.mu.Unlock()
	if of.gone {
		return false
	}
	if of.has == nil {
		of.has = map[series]struct{}{}
	}
	of.has[s] = struct{}{}
	find(append([]string{of.key.namespace, of.key.service}, values...))
	return true
}

// LineLost counts a line of the access log that was left out.
func (m *Metrics) LineLost() {
	if m != nil {
		m.lostLines.Inc()
	}
}

// Routes sets how many ElasticServices are served.
func (m *Metrics) Routes(n int) {
	if m != nil {
		m.routes.Set(float64(n))
	}
}

// HeldBytes exports how many bytes are held for clients, and how many may be.
func (m *Metrics) HeldBytes(used func() int64, most int64) {
	if m == nil {
		return
	}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "dormouse_resolver_held_bytes", Help: "Bytes that are held for clients until a server has them, and for sides of relays that take nothing in.",
		}, func() float64 { return float64(used()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "dormouse_resolver_max_held_bytes", Help: "Bytes that may be held at once. More is refused, or stays with its sender.",
		}, func() float64 { return float64(most) }),
	)
}

// WakeCalled counts a wake call of a service that has ports.
func (m *Metrics) WakeCalled(namespace, service, outcome string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	of := m.services[serviceKey{namespace, service}]
	m.mu.Unlock()
	if of != nil {
		m.find(of, m.wakes, func(labels []string) { m.wakes.WithLabelValues(labels...).Inc() }, outcome)
	}
}

// Forget removes the series of a service. They don't come back, even if its ports still count
// something.
func (m *Metrics) Forget(namespace, service string) {
	if m == nil {
		return
	}
	key := serviceKey{namespace, service}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[key]
	if of == nil {
		return
	}
	of.gone = true
	delete(m.services, key)
	for s := range of.has {
		labels := []string{namespace, service}
		for _, value := range s.values {
			if value != "" {
				labels = append(labels, value)
			}
		}
		s.vec.DeleteLabelValues(labels...)
	}
}

// Port counts for a service's ports of a protocol. Each of its series begins with the first
// thing that is counted.
func (m *Metrics) Port(namespace, name, protocol string) *Port {
	if m == nil {
		return nil
	}
	key := serviceKey{namespace, name}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[key]
	if of == nil {
		of = &service{key: key}
		m.services[key] = of
	}
	for p := of.ports; p != nil; p = p.next {
		if p.protocol == protocol {
			return p
		}
	}
	of.ports = &Port{all: m, of: of, protocol: protocol, next: of.ports}
	return of.ports
}

// Port counts for one service and protocol. A nil Port counts nothing.
type Port struct {
	all      *Metrics
	of       *service
	protocol string
	// next is another port of the service.
	next *Port

	// found is nil before the first thing is counted.
	found atomic.Pointer[found]
}

// found are a port's series, each found once, so that counting costs an atomic addition. An
// idle port has none: they would take more memory than the port.
type found struct {
	held, sessions                       atomic.Pointer[prometheus.Gauge]
	clients, answered                    atomic.Pointer[prometheus.Counter]
	bytesToServer, bytesToClient         atomic.Pointer[prometheus.Counter]
	datagramsToServer, datagramsToClient atomic.Pointer[prometheus.Counter]
	unsentToServer, unsentToClient       atomic.Pointer[prometheus.Counter]
	dropped, notBound                    atomic.Pointer[prometheus.Counter]
	cutShort                             atomic.Pointer[prometheus.Counter]
	// refused and ended are counters by reason, so that counting a flood of refusals needs no
	// lock.
	refused, ended sync.Map
}

// series are those that were found so far.
func (p *Port) series() *found {
	if f := p.found.Load(); f != nil {
		return f
	}
	p.found.CompareAndSwap(nil, &found{})
	return p.found.Load()
}

// nowhere is where a service that is gone is counted.
var (
	nowhere      = prometheus.NewCounter(prometheus.CounterOpts{Name: "nowhere_total", Help: "What is counted of nobody."})
	nowhereGauge = prometheus.NewGauge(prometheus.GaugeOpts{Name: "nowhere", Help: "What there is of nobody."})
)

// counter finds a series of a vector, which has one more label or none.
func (p *Port) counter(at *atomic.Pointer[prometheus.Counter], v *prometheus.CounterVec, more ...string) prometheus.Counter {
	if c := at.Load(); c != nil {
		return *c
	}
	c := p.find(v, more...)
	at.Store(&c)
	return c
}

func (p *Port) find(v *prometheus.CounterVec, more ...string) (c prometheus.Counter) {
	if !p.all.find(p.of, v, func(labels []string) { c = v.WithLabelValues(labels...) }, append([]string{p.protocol}, more...)...) {
		return nowhere
	}
	return c
}

func (p *Port) gauge(at *atomic.Pointer[prometheus.Gauge], v *prometheus.GaugeVec) prometheus.Gauge {
	if g := at.Load(); g != nil {
		return *g
	}
	var g prometheus.Gauge
	if !p.all.find(p.of, v, func(labels []string) { g = v.WithLabelValues(labels...) }, p.protocol) {
		g = nowhereGauge
	}
	at.Store(&g)
	return g
}

// ClientTaken counts a connection or session.
func (p *Port) ClientTaken() {
	if p != nil {
		p.counter(&p.series().clients, p.all.clients).Inc()
	}
}

// QueryAnswered counts a query that was answered in the server's place.
func (p *Port) QueryAnswered() {
	if p != nil {
		p.counter(&p.series().answered, p.all.answered).Inc()
	}
}

// HeldBegun and HeldEnded follow a client that waits.
func (p *Port) HeldBegun() {
	if p != nil {
		p.gauge(&p.series().held, p.all.held).Inc()
	}
}

// HeldEnded ends what HeldBegun began.
func (p *Port) HeldEnded() {
	if p != nil {
		p.gauge(&p.series().held, p.all.held).Dec()
	}
}

// SessionBegun and SessionEnded follow a client that is relayed.
func (p *Port) SessionBegun() {
	if p != nil {
		p.gauge(&p.series().sessions, p.all.sessions).Inc()
	}
}

// SessionEnded ends what SessionBegun began.
func (p *Port) SessionEnded() {
	if p != nil {
		p.gauge(&p.series().sessions, p.all.sessions).Dec()
	}
}

// BytesToServer counts bytes that a client sent.
func (p *Port) BytesToServer(n int) {
	if p != nil {
		p.counter(&p.series().bytesToServer, p.all.bytes, toServer).Add(float64(n))
	}
}

// BytesToClient counts bytes that a backend sent.
func (p *Port) BytesToClient(n int) {
	if p != nil {
		p.counter(&p.series().bytesToClient, p.all.bytes, toClient).Add(float64(n))
	}
}

// DatagramsToServer counts n datagrams from clients, of so many bytes in total.
func (p *Port) DatagramsToServer(n, bytes int) {
	if p != nil {
		p.counter(&p.series().datagramsToServer, p.all.datagrams, toServer).Add(float64(n))
		p.counter(&p.series().bytesToServer, p.all.bytes, toServer).Add(float64(bytes))
	}
}

// DatagramsToClient counts n datagrams from backends, of so many bytes in total.
func (p *Port) DatagramsToClient(n, bytes int) {
	if p != nil {
		p.counter(&p.series().datagramsToClient, p.all.datagrams, toClient).Add(float64(n))
		p.counter(&p.series().bytesToClient, p.all.bytes, toClient).Add(float64(bytes))
	}
}

// UnsentToServer counts a client's datagram that could not be sent.
func (p *Port) UnsentToServer() {
	if p != nil {
		p.counter(&p.series().unsentToServer, p.all.unsent, toServer).Inc()
	}
}

// UnsentToClient counts n datagrams from backends that could not be sent.
func (p *Port) UnsentToClient(n int) {
	if p != nil {
		p.counter(&p.series().unsentToClient, p.all.unsent, toClient).Add(float64(n))
	}
}

// DatagramDropped counts a datagram that a full session could not hold.
func (p *Port) DatagramDropped() {
	if p != nil {
		p.counter(&p.series().dropped, p.all.dropped).Inc()
	}
}

// DatagramRefused counts a datagram that met no bound port.
func (p *Port) DatagramRefused() {
	if p != nil {
		p.counter(&p.series().notBound, p.all.notBound).Inc()
	}
}

// Refused counts a client that was refused.
func (p *Port) Refused(reason string) {
	if p == nil {
		return
	}
	p.by(&p.series().refused, p.all.refused, reason).Inc()
}

// Ended counts the end of a client that was held or relayed.
func (p *Port) Ended(why string) {
	if p != nil {
		p.by(&p.series().ended, p.all.ended, why).Inc()
	}
}

// by finds a vector's series by its reason.
func (p *Port) by(cache *sync.Map, v *prometheus.CounterVec, reason string) prometheus.Counter {
	counter, ok := cache.Load(reason)
	if !ok {
		counter = p.find(v, reason)
		cache.Store(reason, counter)
	}
	return counter.(prometheus.Counter)
}

// SessionCutShort counts a UDP session whose client fell silent in the middle of the
// game.
func (p *Port) SessionCutShort() {
	if p != nil {
		p.counter(&p.series().cutShort, p.all.cutShort).Inc()
	}
}

// Took observes a stage of a wake. The stages are measured for all services together, because
// each service would have a hundred series.
func (p *Port) Took(stage Stage, d time.Duration) {
	if p == nil {
		return
	}
	p.all.stages.WithLabelValues(p.protocol, string(stage)).Observe(d.Seconds())
	if stage == StageTotal {
		p.all.find(p.of, p.all.woken, func(labels []string) { p.all.woken.WithLabelValues(labels...).Observe(d.Seconds()) })
	}
}
