package metrics

import "github.com/prometheus/client_golang/prometheus"

// RegisterBacklog adds how many passes are in a controller's backlog.
func RegisterBacklog(r prometheus.Registerer, controller string, passes func() int) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dormouse_backlog_passes",
		Help: "Passes of a controller over its objects that nobody waits for, to come or under way: a new leader's first one of each object, and those of all ElasticServices " +
			"once other resolvers take clients. A few are made at a time, beside those that somebody waits for. It is 0 once all are done, and at replicas that don't lead.",
		ConstLabels: prometheus.Labels{"controller": controller},
	}, func() float64 { return float64(passes()) }))
}
