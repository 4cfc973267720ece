// Command describe lists the operator's metrics, for docs/metrics.md.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/buildinfo"
	"dormouse.dev/dormouse/internal/dev/metricsdoc"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/operator/internal/metrics"
)

func main() {
	if err := metricsdoc.Write(os.Stdout, "Operator", metricsdoc.Sample(register)); err != nil {
		fmt.Fprintln(os.Stderr, "describe:", err)
		os.Exit(1)
	}
}

// register registers all of the operator's metrics.
func register(registry prometheus.Registerer) {
	buildinfo.Register(registry, "operator")
	(*errortracking.Reporter)(nil).Register(registry)
	httpserver.New(httpserver.Options{Registerer: registry})
	metrics.NewController(registry)
	metrics.NewInformer(registry)
	metrics.NewReports(registry)
	metrics.NewEvictions(registry)
	leads := make(chan struct{})
	close(leads)
	metrics.NewServices(registry, one{}, leads)
	metrics.NewFleets(registry, one{}, leads)
	metrics.NewAutoscalers(registry, one{}, leads)
}

// one is a cluster with one object of each kind.
type one struct{ client.Reader }

// List implements client.Reader.
func (one) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	now := metav1.NowMicro()
	switch list := list.(type) {
	case *v1alpha1.ElasticServiceList:
		list.Items = []v1alpha1.ElasticService{{Status: v1alpha1.ElasticServiceStatus{
			Phase: v1alpha1.PhaseAwake, PhaseSince: &now,
			Conditions: []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionTrue}},
		}}}
	case *v1alpha1.FleetList:
		list.Items = []v1alpha1.Fleet{{}}
	case *v1alpha1.GameAutoscalerList:
		list.Items = []v1alpha1.GameAutoscaler{{Status: v1alpha1.GameAutoscalerStatus{
			Conditions: []metav1.Condition{{Type: conditions.Active, Status: metav1.ConditionTrue}},
		}}}
	case *v1alpha1.ServerList:
	default:
		return fmt.Errorf("list %T: there are none of them", list)
	}
	return nil
}
