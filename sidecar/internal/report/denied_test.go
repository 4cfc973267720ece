package report

import (
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// Each report says since which one all have denied the deletion, so that an operator that has seen
// none of them knows that no other replica has one that allows it. A game may allow it with players.
func TestReportsSaySinceWhichOneAllDenyTheDeletion(t *testing.T) {
	var r Reporter
	denied := reportapi.Report{}
	plays := reportapi.Report{DeletionAllowed: true, Game: reportapi.Game{Players: &v1alpha1.PlayersStatus{Current: 1}}}
	empty := reportapi.Report{DeletionAllowed: true, Game: reportapi.Game{Players: &v1alpha1.PlayersStatus{Capacity: 20}}}
	for i, c := range []struct {
		report reportapi.Report
		want   uint64
	}{
		{reportapi.Report{Restore: true}, 0}, {denied, 2}, {denied, 2}, {plays, 0}, {denied, 5}, {empty, 0}, {plays, 0}, {denied, 8}, {denied, 8},
	} {
		r.sequence++
		if got := r.since(c.report); got != c.want {
			t.Errorf("report %d: denied since %d, want %d", i+1, got, c.want)
		}
	}
}

// What the sidecar after this one needs besides goes with the report, where there is any.
func TestABrokenGamesPhaseIsReported(t *testing.T) {
	o, s, held := started(t)
	if !strings.HasPrefix(held.memory, `{"started":"`) {
		t.Errorf("of a process that has said nothing %q is kept", held.memory)
	}
	s.Allocate()
	o.next()
	s.Failed()
	if broken := o.next(); broken.report.Game.State != v1alpha1.GameUnhealthy || !strings.HasPrefix(broken.memory, `{"phase":"Allocated",`) {
		t.Errorf("%s is reported, with %q; want Unhealthy, which was Allocated", broken.report.Game.State, broken.memory)
	}
}
