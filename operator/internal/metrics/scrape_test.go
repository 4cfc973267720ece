package metrics

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/scrape"
)

// cached lists what is in a cache, as controller-runtime's cache does it.
type cached struct {
	client.Reader
	services, fleets, servers []runtime.Object
}

// List implements client.Reader.
func (c *cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list.(type) {
	case *v1alpha1.ElasticServiceList:
		return meta.SetList(list, c.services)
	case *v1alpha1.FleetList:
		return meta.SetList(list, c.fleets)
	case *v1alpha1.ServerList:
		return meta.SetList(list, c.servers)
	}
	return nil
}

// asleep is the ElasticService of a GameType that was woken once and sleeps again.
func asleep(name string) *v1alpha1.ElasticService {
	since := metav1.NewMicroTime(time.Unix(1_800_000_000, 123_000_000))
	es := &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name},
		Spec:       v1alpha1.ElasticServiceSpec{Service: name},
		Status:     v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, PhaseSince: &since},
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
	} {
		es.Status.Conditions = append(es.Status.Conditions, metav1.Condition{Type: c.of, Status: c.status})
	}
	return es
}

// crowd registers the operator's metrics for so many GameTypes that sleep, each woken once, and as
// many Servers in Fleets of a hundred.
func crowd(tb testing.TB, n int) prometheus.Gatherer {
	tb.Helper()
	all := &cached{}
	registry := prometheus.NewRegistry()
	controller, informer := NewController(registry), NewInformer(registry)
	fleet := func(name string, replicas int32) *v1alpha1.Fleet {
		f := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, UID: types.UID(name)}}
		f.Spec.Replicas = &replicas
		all.fleets = append(all.fleets, f)
		return f
	}
	var full *v1alpha1.Fleet
	for i := range n {
		name := fmt.Sprintf("survival-%05d", i)
		es := asleep(name)
		all.services = append(all.services, es)
		fleet(name+"-5d8f7c9b4", 0)
		informer.Raised(es.Namespace, es.Spec.Service)
		for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseWaking, v1alpha1.PhaseAwake, v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseAsleep} {
			controller.PhaseChanged(es.Namespace, es.Name, string(phase))
		}
		for _, stage := range []Stage{StageScheduled, StageStarted, StageUp, StageHandedOver, StageTotal} {
			controller.WakeTook(es.Namespace, es.Name, es.Spec.Service, stage, 7123*time.Millisecond)
		}
		if i%100 == 0 {
			full = fleet(fmt.Sprintf("lobbies-%03d", i/100), 100)
		}
		all.servers = append(all.servers, &v1alpha1.Server{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "games", Name: fmt.Sprintf("%s-%d", full.Name, i%100),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: full.Name, UID: full.UID, Controller: new(true)}},
			},
			Status: v1alpha1.ServerStatus{State: v1alpha1.ServerReady},
		})
	}
	leads := make(chan struct{})
	close(leads)
	NewServices(registry, all, leads)
	NewFleets(registry, all, leads)
	NewAutoscalers(registry, all, leads)
	NewReports(registry)
	NewEvictions(registry)
	return registry
}

func BenchmarkScrape(b *testing.B) {
	g := crowd(b, 10_000)
	sizes, err := scrape.Measure(g)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d bytes:\n%s", sizes.Total(), sizes)
	scrape.Benchmark(b, g)
}
