package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/scrape"
)

// asleep is the ElasticService of a GameType that was woken once and sleeps again.
func asleep(name string) *v1alpha1.ElasticService {
	since := metav1.NewMicroTime(time.Unix(1_800_000_000, 123_000_000))
	es := &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name},
		Spec:       v1alpha1.ElasticServiceSpec{Service: name},
		Status: v1alpha1.ElasticServiceStatus{
			Phase: v1alpha1.PhaseAsleep, PhaseSince: &since, AsleepSeconds: 1_234_567,
			AsleepRequests: &v1alpha1.AsleepRequests{Replicas: 1, CPU: resource.MustParse("1500m"), Memory: resource.MustParse("3Gi")},
			Saved:          &v1alpha1.Saved{MilliCPUSeconds: 1_851_850_500, MebibyteSeconds: 3_792_589_824},
		},
	}
	for _, c := range []struct {
		of     string
		status metav1.ConditionStatus
	}{
		{conditions.Ready, metav1.ConditionTrue},
		{conditions.TargetFound, metav1.ConditionTrue},
		{conditions.EndpointsInSync, metav1.ConditionTrue},
		{conditions.ServerUp, metav1.ConditionUnknown},
		{conditions.TriggersHealthy, metav1.ConditionTrue},
		{conditions.PlayersKnown, metav1.ConditionUnknown},
		{conditions.IdleSignal, metav1.ConditionTrue},
		{conditions.DirectGated, metav1.ConditionTrue},
		{conditions.DrainSafe, metav1.ConditionTrue},
		{conditions.UDPSessionsKept, metav1.ConditionTrue},
		{conditions.SourceIPPreserved, metav1.ConditionTrue},
		{conditions.TrafficPolicyUnsupported, metav1.ConditionFalse},
		{conditions.FrontReady, metav1.ConditionTrue},
		{conditions.WakePlayersKnown, metav1.ConditionTrue},
		{conditions.AwakeWindowsValid, metav1.ConditionTrue},
		{conditions.WakeGroupValid, metav1.ConditionTrue},
	} {
		es.Status.Conditions = append(es.Status.Conditions, metav1.Condition{Type: c.of, Status: c.status})
	}
	return es
}

// crowd registers the operator's metrics for so many GameTypes that sleep, each woken once and with an
// autoscaler, and as many Servers in Fleets of a hundred.
func crowd(tb testing.TB, n int) prometheus.Gatherer {
	tb.Helper()
	leads := make(chan struct{})
	close(leads)
	c := newCluster(tb, leads)
	controller, informer := NewController(c.registry), NewInformer(c.registry)
	c.gatherer.Add(informer)
	NewAutoscalers(c.registry)
	NewTriggers(c.registry)
	NewReports(c.registry)
	NewEvictions(c.registry)
	fleet := func(name string, replicas int32) *v1alpha1.Fleet {
		f := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name}, Spec: v1alpha1.FleetSpec{Replicas: &replicas}}
		c.add(f)
		return f
	}
	var full *v1alpha1.Fleet
	for i := range n {
		name := fmt.Sprintf("survival-%05d", i)
		es := asleep(name)
		c.add(es, &v1alpha1.GameAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name},
			Status:     v1alpha1.GameAutoscalerStatus{Conditions: []metav1.Condition{{Type: conditions.Active, Status: metav1.ConditionFalse, Reason: "Asleep"}}},
		})
		fleet(name+"-5d8f7c9b4", 0)
		informer.Raised(es.Namespace, es.Spec.Service)
		for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAsleep} {
			controller.PhaseChanged(string(phase))
		}
		for _, stage := range []Stage{StageScheduled, StageStarted, StageUp, StageHandedOver, StageTotal} {
			controller.WakeTook(stage, 7123*time.Millisecond)
		}
		if i%100 == 0 {
			full = fleet(fmt.Sprintf("lobbies-%03d", i/100), 100)
		}
		c.add(&v1alpha1.Server{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "games", Name: fmt.Sprintf("%s-%d", full.Name, i%100),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: full.Name, UID: full.UID, Controller: new(true)}},
			},
			Status: v1alpha1.ServerStatus{State: v1alpha1.ServerReady},
		})
	}
	return c.gatherer
}

// What a scrape takes of each service bounds how many there may be.
func TestAServiceTakesFewBytesOfAScrape(t *testing.T) {
	const most = 500
	few, many := bytesOf(t, crowd(t, 100)), bytesOf(t, crowd(t, 1100))
	if each := (many.Total() - few.Total()) / 1000; each > most {
		t.Errorf("a service and a Server take %d bytes of each scrape, want %d at most:\n%s", each, most, many)
	}
}

func bytesOf(tb testing.TB, g prometheus.Gatherer) scrape.Sizes {
	tb.Helper()
	sizes, err := scrape.Measure(g)
	if err != nil {
		tb.Fatal(err)
	}
	return sizes
}

func BenchmarkScrape(b *testing.B) {
	g := crowd(b, 10_000)
	sizes := bytesOf(b, g)
	b.Logf("%d bytes:\n%s", sizes.Total(), sizes)
	scrape.Benchmark(b, g)
}
