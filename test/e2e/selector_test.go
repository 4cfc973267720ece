package e2e

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// When a Service loses its selector, what Kubernetes wrote by it leads past the resolver.
// Who follows what Dormouse says of it has a service that sleeps, and wakes for everybody.
func TestASelectorIsRemovedFromAServiceThatServes(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	g := env.Game{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true, Trigger: true, SleepAfter: 10 * time.Second, Replicas: 1}
	if err := suite.Cluster.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	err := env.WaitUntil(ctx, "Kubernetes sends clients to the pod", func(ctx context.Context) (bool, error) {
		var slices discoveryv1.EndpointSliceList
		err := suite.Cluster.Client.List(ctx, &slices, client.InNamespace(ns), client.MatchingLabels{
			discoveryv1.LabelServiceName: g.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		})
		if err != nil || len(slices.Items) == 0 {
			return false, err
		}
		endpoints := &corev1.Endpoints{} //nolint:staticcheck // Kubernetes goes on writing them
		err = suite.Cluster.Client.Get(ctx, g.Key(), endpoints)
		return len(endpoints.Subsets) > 0 && len(endpoints.Subsets[0].Addresses) > 0, client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: g.Name}}
	if err := suite.Cluster.Client.Patch(ctx, service, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"selector": null}}`))); err != nil {
		t.Fatal(err)
	}
	ready := func(status metav1.ConditionStatus, reason string) func(*v1alpha1.ElasticService) bool {
		return func(es *v1alpha1.ElasticService) bool {
			c := meta.FindStatusCondition(es.Status.Conditions, conditions.Ready)
			return c != nil && c.Status == status && c.Reason == reason
		}
	}
	if _, err := suite.Cluster.WaitFor(ctx, g.Key(), "told what to delete", ready(metav1.ConditionFalse, reasons.EndpointsBypassResolver)); err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.Client.Delete(ctx, &corev1.Endpoints{ObjectMeta: service.ObjectMeta}); err != nil { //nolint:staticcheck // see above
		t.Fatal(err)
	}
	es, err := suite.Cluster.WaitFor(ctx, g.Key(), "asleep and ready", func(es *v1alpha1.ElasticService) bool {
		return es.Status.Phase == v1alpha1.PhaseAsleep && ready(metav1.ConditionTrue, reasons.OK)(es)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitRouted(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
	l := suite.NewLoad(suite.ClusterIP(ctx, t, g, 7000))
	stop := l.Start(ctx)
	awake(ctx, t, g)
	stop()
	l.Check(t)
}
