package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestOnlyTheLeaderTellsOfServices(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	since := metav1.NewMicroTime(time.Unix(1_700_000_000, 0))
	lobby := &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"},
		Spec:       v1alpha1.ElasticServiceSpec{Service: "front"},
		Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, PhaseSince: &since, Conditions: []metav1.Condition{
			{Type: conditions.Ready, Status: metav1.ConditionTrue},
			{Type: conditions.EndpointsInSync, Status: metav1.ConditionFalse},
			{Type: conditions.TargetFound, Status: metav1.ConditionUnknown},
		}},
	}
	fresh := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "fresh"}}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(lobby, fresh).Build()
	registry := prometheus.NewRegistry()
	leads := make(chan struct{})
	NewServices(registry, reader, leads)

	if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
		t.Errorf("a replica that doesn't lead tells %d series, %v", n, err)
	}
	close(leads)
	want := `
# HELP dormouse_elasticservice_condition An ElasticService's conditions: 1 is True, 0 is False, and there is none while it is Unknown. The leader tells.
# TYPE dormouse_elasticservice_condition gauge
dormouse_elasticservice_condition{condition="EndpointsInSync",name="lobby",namespace="games",service="front"} 0
dormouse_elasticservice_condition{condition="Ready",name="lobby",namespace="games",service="front"} 1
# HELP dormouse_elasticservice_phase_timestamp_seconds When an ElasticService came into the phase that it is in, in seconds since 1970. The leader tells.
# TYPE dormouse_elasticservice_phase_timestamp_seconds gauge
dormouse_elasticservice_phase_timestamp_seconds{name="lobby",namespace="games",phase="Asleep",service="front"} 1.7e+09
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
