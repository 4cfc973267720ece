package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestOnlyTheLeaderTellsOfServices(t *testing.T) {
	since := metav1.NewMicroTime(time.Unix(1_700_000_000, 0))
	lobby := &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"},
		Spec:       v1alpha1.ElasticServiceSpec{Service: "front"},
		Status: v1alpha1.ElasticServiceStatus{Phase: v1alpha1.PhaseAsleep, PhaseSince: &since, Conditions: []metav1.Condition{
			{Type: conditions.Ready, Status: metav1.ConditionTrue},
			{Type: conditions.EndpointsInSync, Status: metav1.ConditionFalse},
			{Type: conditions.TargetFound, Status: metav1.ConditionUnknown},
			{Type: conditions.TrafficPolicyUnsupported, Status: metav1.ConditionTrue},
		}},
	}
	fresh := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "fresh"}}
	leads := make(chan struct{})
	c := newCluster(t, leads)
	c.now = since.Time // what it has slept is another test's
	c.add(lobby, fresh)

	if n, err := testutil.GatherAndCount(c.gather()); n != 0 || err != nil {
		t.Errorf("a replica that doesn't lead tells %d series, %v", n, err)
	}
	close(leads)
	want := `
# HELP dormouse_elasticservice_condition A condition of an ElasticService that is not as it should be: 0 is False, and 1 is True. There is none while it is as it should be, or Unknown. The leader tells.
# TYPE dormouse_elasticservice_condition gauge
dormouse_elasticservice_condition{condition="EndpointsInSync",name="lobby",namespace="games",service="front"} 0
dormouse_elasticservice_condition{condition="TrafficPolicyUnsupported",name="lobby",namespace="games",service="front"} 1
# HELP dormouse_elasticservice_phase_timestamp_seconds When an ElasticService came into the phase that it is in, in seconds since 1970. The leader tells.
# TYPE dormouse_elasticservice_phase_timestamp_seconds gauge
dormouse_elasticservice_phase_timestamp_seconds{name="lobby",namespace="games",phase="Asleep",service="front"} 1.7e+09
`
	if err := testutil.GatherAndCompare(c.gather(), strings.NewReader(want)); err != nil {
		t.Error(err)
	}

	// What is told of it goes with it.
	healed := lobby.DeepCopy()
	healed.Status.Conditions = nil
	c.informer(lobby).Update(lobby, healed)
	if n, err := testutil.GatherAndCount(c.gather()); n != 1 || err != nil {
		t.Errorf("%d series of a service whose conditions are as they should be, want its phase, %v", n, err)
	}
	c.informer(lobby).Delete(healed)
	if n, err := testutil.GatherAndCount(c.gather()); n != 0 || err != nil {
		t.Errorf("%d series of a service that is gone, %v", n, err)
	}
}
