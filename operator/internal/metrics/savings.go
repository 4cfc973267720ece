package metrics

import (
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/objectmetrics"
	"dormouse.dev/dormouse/operator/internal/savings"
)

var (
	asleepMetric = &objectmetrics.Metric{
		Name:   "dormouse_elasticservice_asleep_seconds_total",
		Help:   "How long an ElasticService was asleep in all, with the sleep that isn't over. There is none before its first sleep. The leader tells.",
		Type:   dto.MetricType_COUNTER,
		Labels: []string{"name", "namespace"},
	}
	savedCPUMetric = &objectmetrics.Metric{
		Name:   "dormouse_saved_cpu_seconds_total",
		Help:   "The CPU that sleeping services of a namespace would have requested, in cores times seconds. The leader tells.",
		Type:   dto.MetricType_COUNTER,
		Labels: []string{"namespace"},
	}
	savedMemoryMetric = &objectmetrics.Metric{
		Name:   "dormouse_saved_memory_byte_seconds_total",
		Help:   "The memory that sleeping services of a namespace would have requested, in bytes times seconds. The leader tells.",
		Type:   dto.MetricType_COUNTER,
		Labels: []string{"namespace"},
	}
)

// saved makes counters of what services' sleeps come to. A counter must never go back, which would
// count all of it once more: so what was exported of a service holds until there is more, for the
// status has whole seconds and is seen late; and what was saved by services that are gone stays in
// the sum of their namespace, as long as that has others.
type saved struct {
	mu       sync.Mutex
	exported map[types.UID]*exported
	gone     map[string]savings.Total
	// scrape numbers the scrapes.
	scrape uint64
}

// exported is what was exported of a service, and at which scrape.
type exported struct {
	total     savings.Total
	namespace string
	at        uint64
}

// families are the counters of all services.
func (s *saved) families(now time.Time, all *objects[*v1alpha1.ElasticService]) []*objectmetrics.Family {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scrape++
	asleep, cpu, memory := asleepMetric.Family(), savedCPUMetric.Family(), savedMemoryMetric.Family()
	sums := map[string]savings.Total{}
	all.each(func(es *v1alpha1.ElasticService) {
		total := s.export(now, es)
		if total.Asleep > 0 {
			asleep.Counter(total.Asleep, &es.Name, &es.Namespace)
		}
		sums[es.Namespace] = sums[es.Namespace].Add(total)
	})
	for uid, t := range s.exported {
		if t.at != s.scrape {
			s.gone[t.namespace] = s.gone[t.namespace].Add(t.total)
			delete(s.exported, uid)
		}
	}
	for namespace := range s.gone {
		if _, ok := sums[namespace]; !ok {
			delete(s.gone, namespace)
		}
	}
	for namespace, total := range sums {
		total = total.Add(s.gone[namespace])
		if total.CPU > 0 {
			cpu.Counter(total.CPU, &namespace)
		}
		if total.Memory > 0 {
			memory.Counter(total.Memory, &namespace)
		}
	}
	return []*objectmetrics.Family{asleep, cpu, memory}
}

// export is what a service's sleeps come to, and no less than before.
func (s *saved) export(now time.Time, es *v1alpha1.ElasticService) savings.Total {
	t := s.exported[es.UID]
	if t == nil {
		t = &exported{namespace: es.Namespace}
		s.exported[es.UID] = t
	}
	t.at = s.scrape
	t.total = t.total.Max(savings.At(now, &es.Status))
	return t.total
}
