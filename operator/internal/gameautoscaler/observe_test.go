package gameautoscaler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler/planner"
)

// A Fleet has a Server in another one's stead whose node is lost. Those who are said to play there
// need no room.
func TestServersThatTakePlayersAreCounted(t *testing.T) {
	// in is a Server in a state, with 4 of 10 players.
	in := func(state v1alpha1.ServerState, change func(*v1alpha1.Server)) v1alpha1.Server {
		s := v1alpha1.Server{Status: v1alpha1.ServerStatus{State: state, Players: &v1alpha1.PlayersStatus{Current: 4, Capacity: 10}}}
		if change != nil {
			change(&s)
		}
		return s
	}
	because := func(reason string) func(*v1alpha1.Server) {
		return func(s *v1alpha1.Server) {
			s.Status.Conditions = []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionFalse, Reason: reason}}
		}
	}
	for name, c := range map[string]struct {
		server v1alpha1.Server
		want   planner.Observed
	}{
		"Ready":                   {in(v1alpha1.ServerReady, nil), planner.Observed{Current: 1, Ready: 1, Players: 4, Capacity: 10}},
		"Ready, and nobody plays": {in(v1alpha1.ServerReady, func(s *v1alpha1.Server) { s.Status.Players.Current = 0 }), planner.Observed{Current: 1, Ready: 1, Empty: 1, Capacity: 10}},
		"Allocated":               {in(v1alpha1.ServerAllocated, nil), planner.Observed{Current: 1, Ready: 1, Players: 4, Capacity: 10}},
		"Starting":                {in(v1alpha1.ServerStarting, nil), planner.Observed{Current: 1, Players: 4}},
		"broken":                  {in(v1alpha1.ServerUnhealthy, because(reasons.Unhealthy)), planner.Observed{Current: 1, Players: 4}},
		"its node is lost":        {in(v1alpha1.ServerUnhealthy, because(reasons.NodeLost)), planner.Observed{}},
		"its node was lost": {in(v1alpha1.ServerReady, func(s *v1alpha1.Server) {
			s.Status.Conditions = []metav1.Condition{{Type: conditions.Ready, Status: metav1.ConditionTrue, Reason: reasons.NodeLost}}
		}), planner.Observed{Current: 1, Ready: 1, Players: 4, Capacity: 10}},
		"it drains":           {in(v1alpha1.ServerReady, func(s *v1alpha1.Server) { s.Spec.Drain = true }), planner.Observed{}},
		"it is being deleted": {in(v1alpha1.ServerReady, func(s *v1alpha1.Server) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), planner.Observed{}},
	} {
		var got planner.Observed
		count(&got, &c.server)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Allocated Servers of an earlier template may stay for long, and keep no others from being taken away.
func TestAnUpdateIsUnderWayWhileServersAreReplaced(t *testing.T) {
	for reason, want := range map[string]bool{
		reasons.Updating: true, reasons.AllocatedRemain: false, reasons.OnDelete: false,
	} {
		list := []metav1.Condition{{Type: conditions.Updated, Status: metav1.ConditionFalse, Reason: reason}}
		if got := updating(list); got != want {
			t.Errorf("%s: an update is under way: %t, want %t", reason, got, want)
		}
	}
}
