package idleness

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

func TestJudgeReports(t *testing.T) {
	games := []Game{{Server: "b", PodUID: "pod-b", Started: fixture.At(-600)}, {Server: "a", PodUID: "pod-a", Started: fixture.At(-600)}}
	nobody := func(pod string) reportapi.RecentReport { return reportapi.RecentReport{PodUID: pod} }
	busy := func(pod string) reportapi.RecentReport { return reportapi.RecentReport{PodUID: pod, Busy: true} }
	wrong := errors.New("timeout")
	for name, c := range map[string]struct {
		games       []Game
		recent      map[string]reportapi.RecentReport
		err         error
		want        Reports
		nobodyPlays bool
	}{
		"no game runs":                                           {want: Reports{}, nobodyPlays: true},
		"every Server says that nobody plays":                    {games: games, recent: map[string]reportapi.RecentReport{"a": nobody("pod-a"), "b": nobody("pod-b")}, nobodyPlays: true},
		"somebody plays on one":                                  {games: games, recent: map[string]reportapi.RecentReport{"a": nobody("pod-a"), "b": busy("pod-b")}, want: Reports{Busy: "b"}},
		"all are silent":                                         {games: games, want: Reports{Silent: []string{"a", "b"}}},
		"one spoke of an earlier Pod":                            {games: games, recent: map[string]reportapi.RecentReport{"a": nobody("pod-a"), "b": nobody("pod-0")}, want: Reports{Silent: []string{"b"}}},
		"one was started a moment ago":                           {games: []Game{{Server: "a", PodUID: "pod-a", Started: fixture.At(-29)}}, want: Reports{young: []string{"a"}}},
		"a replica doesn't answer":                               {games: games, err: wrong, want: Reports{Err: wrong}},
		"one that has no game any more said that somebody plays": {recent: map[string]reportapi.RecentReport{"a": busy("pod-a")}, nobodyPlays: true},
	} {
		got := ReportsOf(fixture.T0, c.games, c.recent, c.err)
		c.want.Asked = fixture.T0
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(Reports{}), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s: reports (-want +got):\n%s", name, diff)
		}
		if got.NobodyPlays() != c.nobodyPlays {
			t.Errorf("%s: quiet is %t, want %t", name, got.NobodyPlays(), c.nobodyPlays)
		}
	}
	if (Reports{}).NobodyPlays() {
		t.Error("reports that nobody asked for count as quiet")
	}
}

// Of a Server whose status isn't written yet, because its Pod starts, nobody is known to play, unless
// its game may not go before it has said so.
func TestAServerThatStartsIsNotBusy(t *testing.T) {
	reported := v1alpha1.ServerStatus{Game: &v1alpha1.GameStatus{State: v1alpha1.GameReady}}
	for name, c := range map[string]struct {
		status     v1alpha1.ServerStatus
		unreported v1alpha1.DeletionPermission
		want       bool
	}{
		"nothing is written":                           {},
		"nothing is written, and it may not go so":     {unreported: v1alpha1.DeletionDenied, want: true},
		"its game has said that it may not go":         {status: reported, want: true},
		"the controller has written that it may go":    {status: v1alpha1.ServerStatus{State: v1alpha1.ServerStarting, DeletionAllowed: true}},
		"the controller has written that it may not":   {status: v1alpha1.ServerStatus{State: v1alpha1.ServerStarting}, want: true},
		"somebody plays where nothing else is written": {status: v1alpha1.ServerStatus{Players: &v1alpha1.PlayersStatus{Current: 1}}, want: true},
	} {
		s := &v1alpha1.Server{Status: c.status}
		s.Spec.Deletion.Unreported = c.unreported
		if got := Busy(s); got != c.want {
			t.Errorf("%s: busy %t, want %t", name, got, c.want)
		}
	}
}
