package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// listTimeout bounds a list call to the cache.
const listTimeout = 5 * time.Second

// services exports the ElasticServices' status whenever metrics are collected. Only the leader
// exports it, so that each is counted once.
type services struct {
	reader           client.Reader
	leads            <-chan struct{}
	phase, condition *prometheus.Desc
}

// NewServices registers the metrics of the ElasticServices in a cache. leads is
// closed once this replica is the leader.
func NewServices(reg prometheus.Registerer, reader client.Reader, leads <-chan struct{}) {
	labels := func(more string) []string { return []string{"namespace", "name", "service", more} }
	reg.MustRegister(&services{
		reader: reader,
		leads:  leads,
		phase: prometheus.NewDesc("dormouse_elasticservice_phase_timestamp_seconds",
			"When an ElasticService came into the phase that it is in, in seconds since 1970. The leader tells.", labels("phase"), nil),
		condition: prometheus.NewDesc("dormouse_elasticservice_condition",
			"An ElasticService's conditions: 1 is True, 0 is False, and there is none while it is Unknown. The leader tells.", labels("condition"), nil),
	})
}

// Describe implements prometheus.Collector.
func (s *services) Describe(descs chan<- *prometheus.Desc) {
	descs <- s.phase
	descs <- s.condition
}

// Collect implements prometheus.Collector.
func (s *services) Collect(out chan<- prometheus.Metric) {
	select {
	case <-s.leads:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var list v1alpha1.ElasticServiceList
	// They are only read.
	if err := s.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(s.phase, err)
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, es *v1alpha1.ElasticService, more string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, es.Namespace, es.Name, es.Spec.Service, more)
	}
	for i := range list.Items {
		es := &list.Items[i]
		if es.Status.Phase != "" && es.Status.PhaseSince != nil {
			gauge(s.phase, float64(es.Status.PhaseSince.UnixMilli())/1000, es, string(es.Status.Phase))
		}
		for _, c := range es.Status.Conditions {
			switch c.Status {
			case metav1.ConditionTrue:
				gauge(s.condition, 1, es, c.Type)
			case metav1.ConditionFalse:
				gauge(s.condition, 0, es, c.Type)
			case metav1.ConditionUnknown:
			}
		}
	}
}
