package metrics

import (
	"context"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/objectmetrics"
	"dormouse.dev/dormouse/operator/internal/savings"
)

// services exports the ElasticServices' status whenever metrics are collected. Only the leader
// exports it, so that each is counted once.
type services struct {
	all   *objects[*v1alpha1.ElasticService]
	leads <-chan struct{}
	now   func() time.Time
	saved saved
}

var (
	phaseMetric = &objectmetrics.Metric{
		Name:   "dormouse_elasticservice_phase_timestamp_seconds",
		Help:   "When an ElasticService came into the phase that it is in, in seconds since 1970. The leader tells.",
		Type:   dto.MetricType_GAUGE,
		Labels: []string{"name", "namespace", "phase", "service"},
	}
	conditionMetric = &objectmetrics.Metric{
		Name: "dormouse_elasticservice_condition",
		Help: "A condition of an ElasticService that is not as it should be: 0 is False, and 1 is True. " +
			"There is none while it is as it should be, or Unknown. The leader tells.",
		Type:   dto.MetricType_GAUGE,
		Labels: []string{"condition", "name", "namespace", "service"},
	}
)

// AddServices adds the metrics of the ElasticServices in a cache. leads is closed once this replica
// is the leader.
func AddServices(ctx context.Context, g *objectmetrics.Gatherer, informers cache.Informers, leads <-chan struct{}) error {
	return addServices(ctx, g, informers, leads, time.Now)
}

func addServices(ctx context.Context, g *objectmetrics.Gatherer, informers cache.Informers, leads <-chan struct{}, now func() time.Time) error {
	all, err := watch(ctx, informers, &v1alpha1.ElasticService{})
	if err != nil {
		return err
	}
	g.Add(&services{all: all, leads: leads, now: now, saved: saved{exported: map[types.UID]*exported{}, gone: map[string]savings.Total{}}})
	return nil
}

// Families implements objectmetrics.Collector.
func (s *services) Families() []*objectmetrics.Family {
	if !closed(s.leads) {
		return nil
	}
	phases, amiss := phaseMetric.Family(), conditionMetric.Family()
	s.all.each(func(es *v1alpha1.ElasticService) {
		if es.Status.Phase != "" && es.Status.PhaseSince != nil {
			phases.Gauge(float64(es.Status.PhaseSince.UnixMilli())/1000, &es.Name, &es.Namespace, (*string)(&es.Status.Phase), &es.Spec.Service)
		}
		for i := range es.Status.Conditions {
			if c := &es.Status.Conditions[i]; isAmiss(c) {
				value := 0.0
				if c.Status == metav1.ConditionTrue {
					value = 1
				}
				amiss.Gauge(value, &c.Type, &es.Name, &es.Namespace, &es.Spec.Service)
			}
		}
	})
	return append(s.saved.families(s.now(), s.all), phases, amiss)
}

// isAmiss reports whether a condition is known not to be as it should be.
func isAmiss(c *metav1.Condition) bool {
	if c.Type == conditions.TrafficPolicyUnsupported {
		return c.Status == metav1.ConditionTrue
	}
	return c.Status == metav1.ConditionFalse
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
