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
	// StageUp is from the address to a server that is up.
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
	idleEnded, cutShort                       *prometheus.CounterVec
	stages                                    *prometheus.HistogramVec
	routes                                    prometheus.Gauge
	registry                                  prometheus.Registerer

	mu sync.Mutex
	// byService are the series that a service has. To look for them in each
	// metric would cost as much as all services have.
	byService map[serviceKey]map[series]struct{}
}

type serviceKey struct{ namespace, service string }

// series is one of a metric's: the values that follow namespace and service.
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
		registry:  registry,
		byService: map[serviceKey]map[series]struct{}{},
		held:      gauge("dormouse_resolver_held_clients", "Clients that are held until a server is up."),
		sessions:  gauge("dormouse_resolver_sessions", "Clients that are relayed to a server."),
		clients:   counter("dormouse_resolver_clients_total", "TCP connections and UDP sessions taken.", port),
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
		idleEnded: counter("dormouse_resolver_ended_idle_connections_total",
			"Idle HTTP connections that were closed because new clients go straight to a server.", port),
		cutShort: counter("dormouse_resolver_sessions_cut_short_total",
			"UDP sessions whose client fell silent while its server went on sending and new clients went straight to a server: "+
				"the client quit without a word, or its node sent it there, too, in the middle of the game.", port),
		wakes: counter("dormouse_resolver_wake_calls_total",
			"Wake calls to the operator, by outcome.", []string{"namespace", "service", "outcome"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dormouse_resolver_wake_seconds",
			Help: "Time from the first held client to its delivery, by stage.",
			Buckets: []float64{
				.001, .0025, .005, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300,
			},
		}, with("stage")),
		routes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dormouse_resolver_routes", Help: "ElasticServices that are served.",
		}),
	}
	registry.MustRegister(m.held, m.sessions, m.clients, m.answered, m.bytes, m.datagrams, m.refused, m.dropped,
		m.unsent, m.notBound, m.idleEnded, m.cutShort, m.wakes, m.stages, m.routes)
	return m
}

// note remembers that a service has a series.
func (m *Metrics) note(v vec, namespace, service string, values ...string) {
	s := series{vec: v}
	copy(s.values[:], values)
	key := serviceKey{namespace, service}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byService[key] == nil {
		m.byService[key] = map[series]struct{}{}
	}
	m.byService[key][s] = struct{}{}
}

// Routes says how many ElasticServices are served.
func (m *Metrics) Routes(n int) {
	if m != nil {
		m.routes.Set(float64(n))
	}
}

// HeldBytes shows how much is held for clients, and how much may be.
func (m *Metrics) HeldBytes(used func() int64, most int64) {
	if m == nil {
		return
	}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "dormouse_resolver_held_bytes", Help: "Bytes that are held for clients until a server has them.",
		}, func() float64 { return float64(used()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "dormouse_resolver_max_held_bytes", Help: "Bytes that may be held at once. More is refused, or stays with its sender.",
		}, func() float64 { return float64(most) }),
	)
}

// WakeCalled counts a wake call.
func (m *Metrics) WakeCalled(namespace, service, outcome string) {
	if m != nil {
		m.note(m.wakes, namespace, service, outcome)
		m.wakes.WithLabelValues(namespace, service, outcome).Inc()
	}
}

// Forget removes the series of a service.
func (m *Metrics) Forget(namespace, service string) {
	if m == nil {
		return
	}
	key := serviceKey{namespace, service}
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.byService[key] {
		labels := []string{namespace, service, s.values[0]}
		if s.values[1] != "" {
			labels = append(labels, s.values[1])
		}
		s.vec.DeleteLabelValues(labels...)
	}
	delete(m.byService, key)
}

// Port counts for a service's port. Its series begin with the first thing that is
// counted: those of a port on which nothing ever happens would cost more than the
// port.
func (m *Metrics) Port(namespace, service, protocol string) *Port {
	if m == nil {
		return nil
	}
	return &Port{all: m, namespace: namespace, service: service, protocol: protocol}
}

// Port counts for one service and protocol. A nil Port counts nothing.
type Port struct {
	all                          *Metrics
	namespace, service, protocol string
	begun                        atomic.Pointer[portSeries]
}

// portSeries are found once, so that counting costs an atomic addition.
type portSeries struct {
	held, sessions                       prometheus.Gauge
	clients, answered                    prometheus.Counter
	bytesToServer, bytesToClient         prometheus.Counter
	datagramsToServer, datagramsToClient prometheus.Counter
	unsentToServer, unsentToClient       prometheus.Counter
	dropped, notBound                    prometheus.Counter
	// refused are counters by reason, so that a flood of what is refused locks
	// nothing.
	refused sync.Map
}

func (p *Port) series() *portSeries {
	if s := p.begun.Load(); s != nil {
		return s
	}
	m, l := p.all, p.with()
	for _, v := range []vec{m.held, m.sessions, m.clients, m.answered, m.dropped, m.notBound} {
		m.note(v, p.namespace, p.service, p.protocol)
	}
	directed := func(vec *prometheus.CounterVec, direction string) prometheus.Counter {
		p.note(vec, direction)
		return vec.WithLabelValues(p.with(direction)...)
	}
	s := &portSeries{
		held:              m.held.WithLabelValues(l...),
		sessions:          m.sessions.WithLabelValues(l...),
		clients:           m.clients.WithLabelValues(l...),
		answered:          m.answered.WithLabelValues(l...),
		bytesToServer:     directed(m.bytes, toServer),
		bytesToClient:     directed(m.bytes, toClient),
		datagramsToServer: directed(m.datagrams, toServer),
		datagramsToClient: directed(m.datagrams, toClient),
		unsentToServer:    directed(m.unsent, toServer),
		unsentToClient:    directed(m.unsent, toClient),
		dropped:           m.dropped.WithLabelValues(l...),
		notBound:          m.notBound.WithLabelValues(l...),
	}
	// Who else finds them at the same time finds the same.
	p.begun.Store(s)
	return s
}

// with are the values of the port's labels, and of one more.
func (p *Port) with(more ...string) []string {
	return append([]string{p.namespace, p.service, p.protocol}, more...)
}

func (p *Port) note(v vec, more string) { p.all.note(v, p.namespace, p.service, p.protocol, more) }

// ClientTaken counts a connection or session.
func (p *Port) ClientTaken() {
	if p != nil {
		p.series().clients.Inc()
	}
}

// QueryAnswered counts a query that was answered in the server's place.
func (p *Port) QueryAnswered() {
	if p != nil {
		p.series().answered.Inc()
	}
}

// HeldBegun and HeldEnded follow a client that waits.
func (p *Port) HeldBegun() {
	if p != nil {
		p.series().held.Inc()
	}
}

// HeldEnded ends what HeldBegun began.
func (p *Port) HeldEnded() {
	if p != nil {
		p.series().held.Dec()
	}
}

// SessionBegun and SessionEnded follow a client that is relayed.
func (p *Port) SessionBegun() {
	if p != nil {
		p.series().sessions.Inc()
	}
}

// SessionEnded ends what SessionBegun began.
func (p *Port) SessionEnded() {
	if p != nil {
		p.series().sessions.Dec()
	}
}

// BytesToServer counts what a client sent.
func (p *Port) BytesToServer(n int) {
	if p != nil {
		p.series().bytesToServer.Add(float64(n))
	}
}

// BytesToClient counts what a server sent.
func (p *Port) BytesToClient(n int) {
	if p != nil {
		p.series().bytesToClient.Add(float64(n))
	}
}

// DatagramsToServer counts datagrams of so many bytes that clients sent.
func (p *Port) DatagramsToServer(n, bytes int) {
	if p != nil {
		p.series().datagramsToServer.Add(float64(n))
		p.series().bytesToServer.Add(float64(bytes))
	}
}

// DatagramsToClient counts datagrams of so many bytes that servers sent.
func (p *Port) DatagramsToClient(n, bytes int) {
	if p != nil {
		p.series().datagramsToClient.Add(float64(n))
		p.series().bytesToClient.Add(float64(bytes))
	}
}

// UnsentToServer counts a client's datagram that could not be sent.
func (p *Port) UnsentToServer() {
	if p != nil {
		p.series().unsentToServer.Inc()
	}
}

// UnsentToClient counts a server's datagrams that could not be sent.
func (p *Port) UnsentToClient(n int) {
	if p != nil {
		p.series().unsentToClient.Add(float64(n))
	}
}

// DatagramDropped counts a datagram that a full session could not hold.
func (p *Port) DatagramDropped() {
	if p != nil {
		p.series().dropped.Inc()
	}
}

// DatagramRefused counts a datagram that met no bound port.
func (p *Port) DatagramRefused() {
	if p != nil {
		p.series().notBound.Inc()
	}
}

// Refused counts a client that was sent away.
func (p *Port) Refused(reason string) {
	if p == nil {
		return
	}
	refused := &p.series().refused
	counter, ok := refused.Load(reason)
	if !ok {
		p.note(p.all.refused, reason)
		counter = p.all.refused.WithLabelValues(p.with(reason)...)
		refused.Store(reason, counter)
	}
	counter.(prometheus.Counter).Inc()
}

// IdleEnded counts an idle connection that was closed. It has a series only where
// that happens.
func (p *Port) IdleEnded() {
	if p != nil {
		p.all.note(p.all.idleEnded, p.namespace, p.service, p.protocol)
		p.all.idleEnded.WithLabelValues(p.with()...).Inc()
	}
}

// SessionCutShort counts a UDP session whose client fell silent in the middle of the
// game. It has a series only where that happens.
func (p *Port) SessionCutShort() {
	if p != nil {
		p.all.note(p.all.cutShort, p.namespace, p.service, p.protocol)
		p.all.cutShort.WithLabelValues(p.with()...).Inc()
	}
}

// Took observes a stage of a wake.
func (p *Port) Took(stage Stage, d time.Duration) {
	if p != nil {
		p.note(p.all.stages, string(stage))
		p.all.stages.WithLabelValues(p.with(string(stage))...).Observe(d.Seconds())
	}
}
