// Command describe lists what the operator measures, for docs/metrics.md.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/buildinfo"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/metricsdoc"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

func main() {
	if err := metricsdoc.Write(os.Stdout, "Operator", metricsdoc.Sample(register)); err != nil {
		fmt.Fprintln(os.Stderr, "describe:", err)
		os.Exit(1)
	}
}

// register registers all that the operator does.
func register(registry prometheus.Registerer) {
	buildinfo.Register(registry, "operator")
	(*errortracking.Reporter)(nil).Register(registry)
	httpserver.New(httpserver.Options{Registerer: registry})
	metrics.NewController(registry)
	metrics.NewInformer(registry)
	leads := make(chan struct{})
	close(leads)
	metrics.NewServices(registry, one{}, leads)
}

// one is a cluster with one ElasticService.
type one struct{ client.Reader }

// List implements client.Reader.
func (one) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	services, ok := list.(*v1alpha1.ElasticServiceList)
	if !ok {
		return fmt.Errorf("list %T: there are only ElasticServices", list)
	}
	now := metav1.NowMicro()
	services.Items = []v1alpha1.ElasticService{{Status: v1alpha1.ElasticServiceStatus{
		Phase: v1alpha1.PhaseAwake, PhaseSince: &now,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
	}}}
	return nil
}
