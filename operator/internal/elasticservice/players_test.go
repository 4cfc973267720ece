package elasticservice

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func TestJudgeReports(t *testing.T) {
	games := []game{{server: "b", podUID: "pod-b", started: at(-600)}, {server: "a", podUID: "pod-a", started: at(-600)}}
	quiet := func(pod string) reportapi.RecentReport { return reportapi.RecentReport{PodUID: pod} }
	busy := func(pod string) reportapi.RecentReport { return reportapi.RecentReport{PodUID: pod, Busy: true} }
	wrong := errors.New("timeout")
	for name, c := range map[string]struct {
		games  []game
		recent map[string]reportapi.RecentReport
		err    error
		want   playerReports
		quiet  bool
	}{
		"no game runs":                                           {want: playerReports{}, quiet: true},
		"every Server says that nobody plays":                    {games: games, recent: map[string]reportapi.RecentReport{"a": quiet("pod-a"), "b": quiet("pod-b")}, quiet: true},
		"somebody plays on one":                                  {games: games, recent: map[string]reportapi.RecentReport{"a": quiet("pod-a"), "b": busy("pod-b")}, want: playerReports{busy: "b"}},
		"all are silent":                                         {games: games, want: playerReports{silent: []string{"a", "b"}}},
		"one spoke of an earlier Pod":                            {games: games, recent: map[string]reportapi.RecentReport{"a": quiet("pod-a"), "b": quiet("pod-0")}, want: playerReports{silent: []string{"b"}}},
		"one was started a moment ago":                           {games: []game{{server: "a", podUID: "pod-a", started: at(-29)}}, want: playerReports{young: []string{"a"}}},
		"a replica doesn't answer":                               {games: games, err: wrong, want: playerReports{err: wrong}},
		"one that has no game any more said that somebody plays": {recent: map[string]reportapi.RecentReport{"a": busy("pod-a")}, quiet: true},
	} {
		got := judgeReports(t0, c.games, c.recent, c.err)
		c.want.asked = t0
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(playerReports{}), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s: reports (-want +got):\n%s", name, diff)
		}
		if got.quiet() != c.quiet {
			t.Errorf("%s: quiet is %t, want %t", name, got.quiet(), c.quiet)
		}
	}
	if (playerReports{}).quiet() {
		t.Error("reports that nobody asked for count as quiet")
	}
}

func TestOnlyDormousesOwnKindsHavePlayers(t *testing.T) {
	for ref, want := range map[v1alpha1.ScaleTargetRef]bool{
		{APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: "a"}: true,
		{APIVersion: "dormouse.dev/v1", Kind: "Fleet", Name: "a"}:       true,
		{APIVersion: "dormouse.dev/v1", Kind: "GameType", Name: "a"}:    true,
		{APIVersion: "dormouse.dev/v1", Kind: "Server", Name: "a"}:      false,
		{APIVersion: "agones.dev/v1", Kind: "Fleet", Name: "a"}:         false,
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"}:          false,
	} {
		es := lobby(v1alpha1.PhaseAwake, at(-time.Minute.Seconds()))
		es.Spec.ScaleTargetRef, es.Spec.Idle.Players = ref, true
		if got := hasPlayers(es); got != want {
			t.Errorf("%s %s has players: %t, want %t", ref.APIVersion, ref.Kind, got, want)
		}
	}
}

func TestASelectorBeforeAFleetIsSaidToCutPlayers(t *testing.T) {
	fleet := v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: "a"}
	deployment := v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"}
	none, some := &corev1.Service{}, &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "a"}}}
	for name, c := range map[string]struct {
		target  v1alpha1.ScaleTargetRef
		service *corev1.Service
		want    metav1.ConditionStatus
	}{
		"a Fleet with a selector":      {fleet, some, metav1.ConditionFalse},
		"a Fleet without a selector":   {fleet, none, metav1.ConditionTrue},
		"a Fleet without a Service":    {fleet, nil, metav1.ConditionUnknown},
		"a Deployment with a selector": {deployment, some, metav1.ConditionTrue},
	} {
		es := lobby(v1alpha1.PhaseAwake, at(-time.Minute.Seconds()))
		es.Spec.ScaleTargetRef = c.target
		if got := drainSafe(es, observed{service: c.service}); got.Status != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got.Status, got.Message, c.want)
		}
	}
}
