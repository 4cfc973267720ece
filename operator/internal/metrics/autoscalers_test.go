package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestOnlyTheLeaderTellsOfAutoscalers(t *testing.T) {
	autoscaler := func(name string, status metav1.ConditionStatus, reason string, current, desired int32) *v1alpha1.GameAutoscaler {
		return &v1alpha1.GameAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name},
			Status: v1alpha1.GameAutoscalerStatus{
				CurrentReplicas: current, DesiredReplicas: desired,
				Conditions: []metav1.Condition{{Type: conditions.Active, Status: status, Reason: reason}},
			},
		}
	}
	leads := make(chan struct{})
	c := newCluster(t, leads)
	c.add(autoscaler("pit", metav1.ConditionFalse, "Asleep", 0, 0), autoscaler("arena", metav1.ConditionTrue, "PoliciesEvaluated", 0, 2))
	if n, err := testutil.GatherAndCount(c.gather()); n != 0 || err != nil {
		t.Errorf("a replica that doesn't lead tells %d series, %v", n, err)
	}
	close(leads)
	want := `
# HELP dormouse_autoscaler_active 1 where a GameAutoscaler decides about its target, 0 where it rests or can't, with the reason. The leader tells.
# TYPE dormouse_autoscaler_active gauge
dormouse_autoscaler_active{name="arena",namespace="games",reason="PoliciesEvaluated"} 1
dormouse_autoscaler_active{name="pit",namespace="games",reason="Asleep"} 0
# HELP dormouse_autoscaler_replicas Servers of a GameAutoscaler's target that are there (current) and that it wants (desired), where either isn't 0. The leader tells.
# TYPE dormouse_autoscaler_replicas gauge
dormouse_autoscaler_replicas{name="arena",namespace="games",which="current"} 0
dormouse_autoscaler_replicas{name="arena",namespace="games",which="desired"} 2
`
	if err := testutil.GatherAndCompare(c.gather(), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
