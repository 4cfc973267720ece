// Package metrics owns the resolver's metrics. They are labelled by service and protocol, never by
// client. Of each service there are few series, which end with its route; most is told of all
// services together.
package metrics

import (
	"sync"

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
	bytes, datagrams, unsent *prometheus.CounterVec
	answered, notBound       *prometheus.CounterVec
	ended                    *prometheus.CounterVec
	stages                   *prometheus.HistogramVec
	routes                   prometheus.Gauge
	lostLines                prometheus.Counter
	registry                 prometheus.Registerer

	mu sync.Mutex
	// services are the services that have ports.
	services map[serviceKey]*service
	// protocols are the protocols of all ports that there ever were.
	protocols map[string]*protocol
}

// protocol counts for all ports of a protocol. Each of its series is found once, so that counting
// costs an atomic addition.
type protocol struct {
	bytesToServer, bytesToClient         prometheus.Counter
	datagramsToServer, datagramsToClient prometheus.Counter
	unsentToServer, unsentToClient       prometheus.Counter
	answered, notBound                   prometheus.Counter
}

// New registers the metrics. Those of each service are its Families.
func New(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry:  registry,
		services:  map[serviceKey]*service{},
		protocols: map[string]*protocol{},
		answered: counter("dormouse_resolver_answered_queries_total",
			"Status queries and probes that were answered in a server's place.", "protocol"),
		bytes:     counter("dormouse_resolver_bytes_total", "Bytes relayed, by direction.", "protocol", "direction"),
		datagrams: counter("dormouse_resolver_datagrams_total", "Datagrams relayed, by direction.", "protocol", "direction"),
		unsent: counter("dormouse_resolver_unsent_datagrams_total",
			"Datagrams that could not be sent on and were lost, because there was no room or no way, or they were too large for it, by direction.",
			"protocol", "direction"),
		notBound: counter("dormouse_resolver_refused_datagrams_total",
			"Datagrams that a server refused because nothing was bound to its port.", "protocol"),
		ended: counter("dormouse_resolver_ended_clients_total",
			"Clients that were held or relayed and have gone, by what ended them: client or server, whichever was first; timeout, "+
				"where nothing was said for too long; idle, where an idle HTTP connection was closed for new clients go straight to a server; "+
				"drained, where the resolver stopped; gave_up, where a client went away while it was held; turn, where a client of a front goes on "+
				"with a request for another host; memory, where there was none for what it said of its next request. Those that were refused "+
				"are not among them.",
			"protocol", "end"),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dormouse_resolver_wake_seconds",
			Help: "Time from the first held client to its delivery, by stage, of all services.",
			Buckets: []float64{
				.001, .0025, .005, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300,
			},
		}, []string{"protocol", "stage"}),
		routes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dormouse_resolver_routes", Help: "ElasticServices that are served.",
		}),
		lostLines: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dormouse_resolver_lost_access_log_lines_total",
			Help: "Lines of the access log that were left out because it is written too slowly, or not at all.",
		}),
	}
	registry.MustRegister(m.lostLines, m.answered, m.bytes, m.datagrams, m.unsent, m.notBound, m.ended, m.stages, m.routes)
	return m
}

// protocol finds a protocol. The caller has the lock.
func (m *Metrics) protocol(name string) *protocol {
	p := m.protocols[name]
	if p == nil {
		p = &protocol{
			bytesToServer: m.bytes.WithLabelValues(name, toServer), bytesToClient: m.bytes.WithLabelValues(name, toClient),
			datagramsToServer: m.datagrams.WithLabelValues(name, toServer), datagramsToClient: m.datagrams.WithLabelValues(name, toClient),
			unsentToServer: m.unsent.WithLabelValues(name, toServer), unsentToClient: m.unsent.WithLabelValues(name, toClient),
			answered: m.answered.WithLabelValues(name), notBound: m.notBound.WithLabelValues(name),
		}
		m.protocols[name] = p
	}
	return p
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
