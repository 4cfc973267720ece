// Command describe lists the operator's metrics, for docs/metrics.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/buildinfo"
	"dormouse.dev/dormouse/internal/dev/metricsdoc"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/objectmetrics"
	"dormouse.dev/dormouse/operator/internal/kindwatch"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/restapi"
	"dormouse.dev/dormouse/operator/internal/savings"
)

func main() {
	gatherer, err := gather(context.Background())
	if err == nil {
		err = metricsdoc.Write(os.Stdout, "Operator", gatherer)
	}
	if err == nil {
		err = metricsdoc.Write(os.Stdout, "REST API", metricsdoc.Sample(func(registry prometheus.Registerer) { restapi.NewMetrics(registry) }))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "describe:", err)
		os.Exit(1)
	}
}

// gather gathers all of the operator's metrics, with a series of each.
func gather(ctx context.Context) (prometheus.Gatherer, error) {
	var informer *metrics.Informer
	gatherer := objectmetrics.NewGatherer(metricsdoc.Sample(func(registry prometheus.Registerer) {
		buildinfo.Register(registry, "operator")
		(*errortracking.Reporter)(nil).Register(registry)
		httpserver.New(httpserver.Options{Registerer: registry})
		metrics.NewController(registry)
		metrics.NewTriggers(registry)
		metrics.RegisterPrices(registry, savings.Prices{})
		metrics.RegisterTargets(registry, func() map[kindwatch.State]int { return nil })
		metrics.RegisterBacklog(registry, "", func() int { return 0 })
		metrics.NewReports(registry)
		metrics.NewEvictions(registry)
		metrics.NewAutoscalers(registry)
		metrics.NewAllocations(registry)
		metrics.NewBackups(registry)
		informer = metrics.NewInformer(registry)
	}))
	informer.Raised("", "")
	gatherer.Add(informer)
	leads := make(chan struct{})
	close(leads)
	return gatherer, errors.Join(
		metrics.AddServices(ctx, gatherer, one{}, leads),
		metrics.AddFleets(ctx, gatherer, one{}, leads),
		metrics.AddAutoscalers(ctx, gatherer, one{}, leads),
	)
}

// one is a cache with one object of each kind.
type one struct{ cache.Informers }

// GetInformer implements cache.Informers.
func (one) GetInformer(_ context.Context, kind client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	now := metav1.NowMicro()
	switch kind := kind.(type) {
	case *v1alpha1.ElasticService:
		kind.Status = v1alpha1.ElasticServiceStatus{
			Phase: v1alpha1.PhaseAwake, PhaseSince: &now,
			AsleepSeconds: 1, Saved: &v1alpha1.Saved{MilliCPUSeconds: 1, MebibyteSeconds: 1},
			Conditions: []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionFalse}},
		}
	case *v1alpha1.GameAutoscaler:
		kind.Status.CurrentReplicas = 1
		kind.Status.Conditions = []metav1.Condition{{Type: conditions.Active, Status: metav1.ConditionTrue}}
	}
	return informerOf{object: kind}, nil
}

// informerOf is an informer with one object.
type informerOf struct {
	cache.Informer
	object client.Object
}

// AddEventHandler implements cache.Informer.
func (i informerOf) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	handler.OnAdd(i.object, true)
	return nil, nil
}
