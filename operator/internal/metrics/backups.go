package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Backups counts the copies of Servers' disks. There are series only of Servers with spec.backup.
type Backups struct {
	ended       *prometheus.CounterVec
	lastSuccess *prometheus.GaugeVec
	lastFailed  *prometheus.GaugeVec
}

// NewBackups registers the metrics of Backups.
func NewBackups(reg prometheus.Registerer) *Backups {
	of := []string{"namespace", "server"}
	m := &Backups{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dormouse_backups_total",
			Help: "Backups of a Server that has spec.backup, by their result: Complete, Failed, or Canceled by a wake. The leader counts.",
		}, []string{"namespace", "server", "result"}),
		lastSuccess: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dormouse_backup_last_success_timestamp_seconds",
			Help: "When the last Backup of a Server with spec.backup succeeded, in seconds since 1970; 0 until one has. The leader tells.",
		}, of),
		lastFailed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dormouse_backup_last_failed",
			Help: "1 where the last Backup of a Server with spec.backup that wasn't canceled failed, 0 where it didn't. The leader tells.",
		}, of),
	}
	reg.MustRegister(m.ended, m.lastSuccess, m.lastFailed)
	return m
}

// Ended counts a Backup that has ended.
func (m *Backups) Ended(namespace, server, result string) {
	if m != nil {
		m.ended.WithLabelValues(namespace, server, result).Inc()
	}
}

// Last tells when the last Backup of a Server succeeded, where one has, and whether the last one failed.
func (m *Backups) Last(namespace, server string, success time.Time, failed bool) {
	if m == nil {
		return
	}
	at, is := 0.0, 0.0
	if !success.IsZero() {
		at = float64(success.Unix())
	}
	if failed {
		is = 1
	}
	m.lastSuccess.WithLabelValues(namespace, server).Set(at)
	m.lastFailed.WithLabelValues(namespace, server).Set(is)
}

// Forget drops the series of a Server.
func (m *Backups) Forget(namespace, server string) {
	if m == nil {
		return
	}
	of := prometheus.Labels{"namespace": namespace, "server": server}
	m.ended.DeletePartialMatch(of)
	m.lastSuccess.DeletePartialMatch(of)
	m.lastFailed.DeletePartialMatch(of)
}
