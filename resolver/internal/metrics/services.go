package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"dormouse.dev/dormouse/internal/objectmetrics"
)

// Metrics of each service. What somebody acts on where it is about one service is here, and has a
// series only where it is not zero: a service that sleeps has four.
var (
	ofPort = []string{"namespace", "protocol", "service"}

	heldMetric = &objectmetrics.Metric{
		Name: "dormouse_resolver_held_clients", Help: "Clients that are held until a server is up. Where there are none, there is no series.",
		Type: dto.MetricType_GAUGE, Labels: ofPort,
	}
	sessionsMetric = &objectmetrics.Metric{
		Name: "dormouse_resolver_sessions", Help: "Clients that are relayed to a server. Where there are none, there is no series.",
		Type: dto.MetricType_GAUGE, Labels: ofPort,
	}
	clientsMetric = &objectmetrics.Metric{
		Name: "dormouse_resolver_clients_total", Help: "TCP connections and UDP sessions taken.",
		Type: dto.MetricType_COUNTER, Labels: ofPort,
	}
	refusedMetric = &objectmetrics.Metric{
		Name: "dormouse_resolver_refused_clients_total", Help: "Clients that were sent away, by reason.",
		Type: dto.MetricType_COUNTER, Labels: []string{"namespace", "protocol", "reason", "service"},
	}
	droppedMetric = &objectmetrics.Metric{
		Name: "dormouse_resolver_dropped_datagrams_total",
		Help: "Datagrams that were dropped because a session, or the resolver, held as many bytes as it may.",
		Type: dto.MetricType_COUNTER, Labels: ofPort,
	}
	cutShortMetric = &objectmetrics.Metric{
		Name: "dormouse_resolver_sessions_cut_short_total",
		Help: "UDP sessions whose client fell silent while its server went on sending and new clients went straight to a server: " +
			"the client quit without a word, or its node sent it there, too, in the middle of the game.",
		Type: dto.MetricType_COUNTER, Labels: ofPort,
	}
	wakeCallsMetric = &objectmetrics.Metric{
		Name: "dormouse_resolver_wake_calls_total", Help: "Wake calls to the operator, by outcome.",
		Type: dto.MetricType_COUNTER, Labels: []string{"namespace", "outcome", "service"},
	}
	wokenMetric = &objectmetrics.Metric{
		Name: "dormouse_resolver_service_wake_seconds", Help: "Time from the first held client to its delivery, and how often, of each service.",
		Type: dto.MetricType_SUMMARY, Labels: []string{"namespace", "service"},
	}
)

type serviceKey struct{ namespace, service string }

// service is a service that has ports. The metrics' lock guards it.
type service struct {
	// ports are a list, for they are few.
	ports *Port
	calls []wakeCalls
	// woken and wakeTime are how often a client was delivered that it had been woken for, and the
	// time that these wakes took together.
	woken    uint64
	wakeTime time.Duration
}

// wakeCalls are a service's wake calls with the same outcome.
type wakeCalls struct {
	outcome string
	n       int64
}

// Families implements objectmetrics.Collector.
func (m *Metrics) Families() []*objectmetrics.Family {
	held, sessions, clients := heldMetric.Family(), sessionsMetric.Family(), clientsMetric.Family()
	refused, dropped, cutShort := refusedMetric.Family(), droppedMetric.Family(), cutShortMetric.Family()
	calls, woken := wakeCallsMetric.Family(), wokenMetric.Family()
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, of := range m.services {
		for i := range of.calls {
			calls.Counter(float64(of.calls[i].n), &key.namespace, &of.calls[i].outcome, &key.service)
		}
		if of.woken > 0 {
			woken.Summary(of.woken, of.wakeTime.Seconds(), &key.namespace, &key.service)
		}
		for p := of.ports; p != nil; p = p.next {
			if n := p.held.Load(); n != 0 {
				held.Gauge(float64(n), &key.namespace, &p.protocol, &key.service)
			}
			if n := p.sessions.Load(); n != 0 {
				sessions.Gauge(float64(n), &key.namespace, &p.protocol, &key.service)
			}
			if n := p.clients.Load(); n != 0 {
				clients.Counter(float64(n), &key.namespace, &p.protocol, &key.service)
			}
			if n := p.dropped.Load(); n != 0 {
				dropped.Counter(float64(n), &key.namespace, &p.protocol, &key.service)
			}
			if n := p.cutShort.Load(); n != 0 {
				cutShort.Counter(float64(n), &key.namespace, &p.protocol, &key.service)
			}
			for reason, n := range p.refused.Range {
				why := reason.(string)
				refused.Counter(float64(n.(*atomic.Int64).Load()), &key.namespace, &p.protocol, &why, &key.service)
			}
		}
	}
	return []*objectmetrics.Family{held, sessions, clients, refused, dropped, cutShort, calls, woken}
}

// WakeCalled counts a wake call of a service that has ports.
func (m *Metrics) WakeCalled(namespace, service, outcome string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[serviceKey{namespace, service}]
	if of == nil {
		return
	}
	for i := range of.calls {
		if of.calls[i].outcome == outcome {
			of.calls[i].n++
			return
		}
	}
	of.calls = append(of.calls, wakeCalls{outcome, 1})
}

// Forget removes the series of a service. They don't come back, even if its ports still count
// something.
func (m *Metrics) Forget(namespace, service string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.services, serviceKey{namespace, service})
}

// Port counts for a service's ports of a protocol.
func (m *Metrics) Port(namespace, name, protocol string) *Port {
	if m == nil {
		return nil
	}
	key := serviceKey{namespace, name}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[key]
	if of == nil {
		of = &service{}
		m.services[key] = of
	}
	for p := of.ports; p != nil; p = p.next {
		if p.protocol == protocol {
			return p
		}
	}
	of.ports = &Port{all: m, of: of, protocol: protocol, together: m.protocol(protocol), next: of.ports}
	return of.ports
}

// Port counts for one service and protocol. A nil Port counts nothing.
type Port struct {
	all      *Metrics
	of       *service
	protocol string
	together *protocol
	// next is another port of the service.
	next *Port

	held, sessions, clients, dropped, cutShort atomic.Int64
	// refused has a counter, an *atomic.Int64, for each reason, so that counting a flood of
	// refusals needs no lock.
	refused sync.Map
}

// ClientTaken counts a connection or session.
func (p *Port) ClientTaken() {
	if p != nil {
		p.clients.Add(1)
	}
}

// QueryAnswered counts a query that was answered in the server's place.
func (p *Port) QueryAnswered() {
	if p != nil {
		p.together.answered.Inc()
	}
}

// HeldBegun and HeldEnded follow a client that waits.
func (p *Port) HeldBegun() {
	if p != nil {
		p.held.Add(1)
	}
}

// HeldEnded ends what HeldBegun began.
func (p *Port) HeldEnded() {
	if p != nil {
		p.held.Add(-1)
	}
}

// SessionBegun and SessionEnded follow a client that is relayed.
func (p *Port) SessionBegun() {
	if p != nil {
		p.sessions.Add(1)
	}
}

// SessionEnded ends what SessionBegun began.
func (p *Port) SessionEnded() {
	if p != nil {
		p.sessions.Add(-1)
	}
}

// BytesToServer counts bytes that a client sent.
func (p *Port) BytesToServer(n int) {
	if p != nil {
		p.together.bytesToServer.Add(float64(n))
	}
}

// BytesToClient counts bytes that a backend sent.
func (p *Port) BytesToClient(n int) {
	if p != nil {
		p.together.bytesToClient.Add(float64(n))
	}
}

// DatagramsToServer counts n datagrams from clients, of so many bytes in total.
func (p *Port) DatagramsToServer(n, bytes int) {
	if p != nil {
		p.together.datagramsToServer.Add(float64(n))
		p.together.bytesToServer.Add(float64(bytes))
	}
}

// DatagramsToClient counts n datagrams from backends, of so many bytes in total.
func (p *Port) DatagramsToClient(n, bytes int) {
	if p != nil {
		p.together.datagramsToClient.Add(float64(n))
		p.together.bytesToClient.Add(float64(bytes))
	}
}

// UnsentToServer counts a client's datagram that could not be sent.
func (p *Port) UnsentToServer() {
	if p != nil {
		p.together.unsentToServer.Inc()
	}
}

// UnsentToClient counts n datagrams from backends that could not be sent.
func (p *Port) UnsentToClient(n int) {
	if p != nil {
		p.together.unsentToClient.Add(float64(n))
	}
}

// DatagramDropped counts a datagram that a full session could not hold.
func (p *Port) DatagramDropped() {
	if p != nil {
		p.dropped.Add(1)
	}
}

// DatagramRefused counts a datagram that met no bound port.
func (p *Port) DatagramRefused() {
	if p != nil {
		p.together.notBound.Inc()
	}
}

// Refused counts a client that was refused.
func (p *Port) Refused(reason string) {
	if p == nil {
		return
	}
	counter, ok := p.refused.Load(reason)
	if !ok {
		counter, _ = p.refused.LoadOrStore(reason, new(atomic.Int64))
	}
	counter.(*atomic.Int64).Add(1)
}

// Ended counts the end of a client that was held or relayed.
func (p *Port) Ended(why string) {
	if p != nil {
		p.all.ended.WithLabelValues(p.protocol, why).Inc()
	}
}

// SessionCutShort counts a UDP session whose client fell silent in the middle of the
// game.
func (p *Port) SessionCutShort() {
	if p != nil {
		p.cutShort.Add(1)
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
		p.all.mu.Lock()
		defer p.all.mu.Unlock()
		p.of.woken++
		p.of.wakeTime += d
	}
}
