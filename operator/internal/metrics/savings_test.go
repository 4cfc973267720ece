package metrics

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/savings"
)

// counters are the values of all counters, by the metric and the name or namespace.
func (c *cluster) counters() map[string]float64 {
	c.tb.Helper()
	families, err := c.gather().Gather()
	if err != nil {
		c.tb.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if counter := m.GetCounter(); counter != nil {
				values[strings.TrimPrefix(f.GetName(), "dormouse_")+" "+m.GetLabel()[0].GetValue()] = counter.GetValue()
			}
		}
	}
	return values
}

func (c *cluster) wantCounters(want map[string]float64) {
	c.tb.Helper()
	if diff := cmp.Diff(want, c.counters()); diff != "" {
		c.tb.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestCountersOfWhatIsSavedNeverGoBack(t *testing.T) {
	leads := make(chan struct{})
	close(leads)
	c := newCluster(t, leads)
	began := metav1.NewMicroTime(c.now)
	sleeper := func(name string) *v1alpha1.ElasticService {
		return &v1alpha1.ElasticService{
			ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name},
			Status: v1alpha1.ElasticServiceStatus{
				Phase: v1alpha1.PhaseAsleep, PhaseSince: &began, AsleepSeconds: 100,
				AsleepRequests: &v1alpha1.AsleepRequests{CPU: resource.MustParse("500m"), Memory: resource.MustParse("1Mi")},
				Saved:          &v1alpha1.Saved{MilliCPUSeconds: 50_000, MebibyteSeconds: 100},
			},
		}
	}
	lobby, arena := sleeper("lobby"), sleeper("arena")
	arena.Status = v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAwake, PhaseSince: &began}
	c.add(lobby, arena)
	c.now = c.now.Add(10*time.Second + 400*time.Millisecond)
	want := map[string]float64{
		"elasticservice_asleep_seconds_total lobby": 110.4, "saved_cpu_seconds_total games": 55.2,
		"saved_memory_byte_seconds_total games": 110.4 * (1 << 20),
	}
	c.wantCounters(want)

	// Its status has whole seconds, and a pass's time, when it wakes.
	awake := lobby.DeepCopy()
	savings.End(c.now.Add(-200*time.Millisecond), &awake.Status)
	awake.Status.Phase = v1alpha1.PhaseAwake
	c.informer(lobby).Update(lobby, awake)
	c.wantCounters(want)

	// What others saved stays in the sum of the namespace, once.
	c.informer(lobby).Delete(awake)
	left := maps.Clone(want)
	delete(left, "elasticservice_asleep_seconds_total lobby")
	c.wantCounters(left)
	c.wantCounters(left)
	other := sleeper("other")
	other.Status.PhaseSince = &metav1.MicroTime{Time: c.now}
	c.add(other)
	c.wantCounters(map[string]float64{
		"elasticservice_asleep_seconds_total other": 100, "saved_cpu_seconds_total games": 55.2 + 50,
		"saved_memory_byte_seconds_total games": 210.4 * (1 << 20),
	})

	// A namespace without services is forgotten.
	c.informer(other).Delete(other)
	c.informer(arena).Delete(arena)
	c.wantCounters(map[string]float64{})
}

func TestPricesAreToldWhereThereAreAny(t *testing.T) {
	none, some := prometheus.NewRegistry(), prometheus.NewRegistry()
	RegisterPrices(none, savings.Prices{})
	RegisterPrices(some, savings.Prices{CPUHour: 0.04, Currency: "EUR"})
	const want = `
# HELP dormouse_price What a resource costs for an hour: cpu is a core's, and memory a GiB's. There is none unless the operator was told.
# TYPE dormouse_price gauge
dormouse_price{currency="EUR",resource="cpu"} 0.04
dormouse_price{currency="EUR",resource="memory"} 0
`
	if err := testutil.GatherAndCompare(some, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(none); n != 0 || err != nil {
		t.Errorf("%d series without prices, %v", n, err)
	}
}
