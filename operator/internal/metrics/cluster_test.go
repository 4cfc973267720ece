package metrics

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/objectmetrics"
)

// cluster is what the caches of these metrics have.
type cluster struct {
	tb        testing.TB
	informers *informertest.FakeInformers
	registry  *prometheus.Registry
	gatherer  *objectmetrics.Gatherer
	// now is the clock.
	now time.Time
}

// newCluster registers the metrics of a cluster's objects. They are told once leads is closed.
func newCluster(tb testing.TB, leads <-chan struct{}) *cluster {
	tb.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		tb.Fatal(err)
	}
	c := &cluster{tb: tb, informers: &informertest.FakeInformers{Scheme: scheme}, registry: prometheus.NewRegistry(), now: time.Unix(1_800_086_400, 0)}
	c.gatherer = objectmetrics.NewGatherer(c.registry)
	err := errors.Join(
		addServices(tb.Context(), c.gatherer, c.informers, leads, func() time.Time { return c.now }),
		AddFleets(tb.Context(), c.gatherer, c.informers, leads),
		AddAutoscalers(tb.Context(), c.gatherer, c.informers, leads),
	)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// gather gathers the metrics as Prometheus' own library would have made them: sorted, and with an
// error where something is there twice.
func (c *cluster) gather() prometheus.Gatherer { return prometheus.Gatherers{c.gatherer} }

// informer tells of the objects of obj's kind. An object without UID gets its name for one.
func (c *cluster) informer(obj client.Object) *controllertest.FakeInformer {
	c.tb.Helper()
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(obj.GetNamespace() + "/" + obj.GetName()))
	}
	informer, err := c.informers.FakeInformerFor(c.tb.Context(), obj)
	if err != nil {
		c.tb.Fatal(err)
	}
	return informer
}

// add adds objects to the cluster.
func (c *cluster) add(objects ...client.Object) {
	c.tb.Helper()
	for _, obj := range objects {
		c.informer(obj).Add(obj)
	}
}
