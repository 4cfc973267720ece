package files

import "github.com/prometheus/client_golang/prometheus"

// refusal is why something was refused.
type refusal string

// Refusals.
const (
	// refusedConnections and refusedAddress are connections over the bound in total, and over
	// that of an address.
	refusedConnections refusal = "connections"
	refusedAddress     refusal = "address"
	// refusedNetwork is a client of a network that may not connect, and refusedProxy a connection
	// without the header that says where its client is.
	refusedNetwork refusal = "network"
	refusedProxy   refusal = "proxy"
	// refusedHandshake is a connection that ended, or took too long, before anybody had logged in.
	refusedHandshake refusal = "handshake"
	refusedPassword  refusal = "password"
	// refusedThrottled is a password that was not looked at, after too many wrong ones.
	refusedThrottled refusal = "throttled"
	refusedKey       refusal = "key"
	refusedChannel   refusal = "channel"
	refusedRequest   refusal = "request"
	// refusedFiles is a file over the bound of open files.
	refusedFiles refusal = "files"
	refusedQuota refusal = "quota"
)

// metrics are those of the server.
type metrics struct {
	refusals, logins, bytes *prometheus.CounterVec
	sessions                prometheus.Gauge
}

// RegisterMetrics registers the metrics of a server of its own, for who lists them.
func RegisterMetrics(registry prometheus.Registerer) { newMetrics(registry) }

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_files_refusals_total",
			Help: "What was refused, by reason: connections, address, network, proxy, handshake, password, throttled, key, channel, request, files or quota.",
		}, []string{"reason"}),
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_files_logins_total", Help: "Logins, by method: password or publickey.",
		}, []string{"method"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_files_bytes_total", Help: "Bytes of SFTP, by direction: received or sent.",
		}, []string{"direction"}),
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "dormouse_files_sessions", Help: "Users that are logged in, counted by connection."}),
	}
	registry.MustRegister(m.refusals, m.logins, m.bytes, m.sessions)
	return m
}

func (m *metrics) refused(why refusal) { m.refusals.WithLabelValues(string(why)).Inc() }
