package planner

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

func seconds(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// awake is a target with so many Servers, all Ready.
func awake(replicas int32) Observed {
	return Observed{Desired: replicas, Current: replicas, Ready: replicas, Fresh: true}
}

func (o Observed) with(change func(*Observed)) Observed {
	change(&o)
	return o
}

// plays is that so many play, where ten fit on each Server.
func (o Observed) plays(players int64) Observed {
	o.Players, o.Capacity = players, 10*int64(o.Ready)
	return o
}

// outcome is what tables compare of a wish: -1 stands for none.
type outcome struct {
	Replicas int32
	Reason   string
	Failed   bool
	Again    time.Duration
}

func outcomeOf(w wish) outcome {
	o := outcome{Replicas: -1, Reason: w.reason, Failed: w.failed}
	if w.replicas != nil {
		o.Replicas = *w.replicas
	}
	if !w.again.IsZero() {
		o.Again = w.again.Sub(t0)
	}
	return o
}

func TestActivePlayersGoesByTheLoad(t *testing.T) {
	played := History{played: true}
	for name, test := range map[string]struct {
		policy   v1alpha1.ActivePlayersPolicy
		behavior v1alpha1.AutoscalerBehavior
		history  History
		observed Observed
		want     outcome
	}{
		"in between":                    {observed: awake(4).plays(20), want: outcome{4, reasons.LoadNormal, false, 0}},
		"exactly at the upper bound":    {observed: awake(4).plays(32), want: outcome{4, reasons.LoadNormal, false, 0}},
		"one player above it":           {observed: awake(4).plays(33), want: outcome{5, reasons.LoadHigh, false, 0}},
		"exactly at the lower bound":    {observed: awake(4).plays(12), want: outcome{4, reasons.LoadNormal, false, 0}},
		"one player below it":           {observed: awake(4).plays(11), want: outcome{3, reasons.LoadLow, false, 0}},
		"nobody plays":                  {observed: awake(4).plays(0), want: outcome{3, reasons.LoadLow, false, 0}},
		"nobody plays on the last":      {observed: awake(1).plays(0), want: outcome{1, reasons.LoadNormal, false, 0}},
		"more play than can":            {observed: awake(4).plays(100), want: outcome{5, reasons.LoadHigh, false, 0}},
		"other bounds":                  {policy: v1alpha1.ActivePlayersPolicy{ScaleOutAbovePercent: new(int32(50)), ScaleInBelowPercent: new(int32(10))}, observed: awake(4).plays(21), want: outcome{5, reasons.LoadHigh, false, 0}},
		"other bounds, low":             {policy: v1alpha1.ActivePlayersPolicy{ScaleOutAbovePercent: new(int32(50)), ScaleInBelowPercent: new(int32(10))}, observed: awake(4).plays(4), want: outcome{4, reasons.LoadNormal, false, 0}},
		"never in":                      {policy: v1alpha1.ActivePlayersPolicy{ScaleInBelowPercent: new(int32(0))}, observed: awake(4).plays(0), want: outcome{4, reasons.LoadNormal, false, 0}},
		"a large step out":              {policy: v1alpha1.ActivePlayersPolicy{Step: new(int32(5))}, observed: awake(4).plays(40), want: outcome{9, reasons.LoadHigh, false, 0}},
		"a large step in":               {policy: v1alpha1.ActivePlayersPolicy{Step: new(int32(3))}, observed: awake(10).plays(10), want: outcome{7, reasons.LoadLow, false, 0}},
		"a step in that would be large": {policy: v1alpha1.ActivePlayersPolicy{Step: new(int32(9))}, observed: awake(10).plays(29), want: outcome{4, reasons.LoadLow, false, 0}},
		"a step in that would be too large for anything less": {
			policy: v1alpha1.ActivePlayersPolicy{ScaleOutAbovePercent: new(int32(40)), ScaleInBelowPercent: new(int32(39))}, observed: awake(2).plays(7),
			want: outcome{2, reasons.LoadNormal, false, 0},
		},
		"a step in beyond the last":     {policy: v1alpha1.ActivePlayersPolicy{Step: new(int32(1000))}, observed: awake(4).plays(0), want: outcome{1, reasons.LoadLow, false, 0}},
		"a size of its own":             {policy: v1alpha1.ActivePlayersPolicy{MaxPlayersPerServer: new(int32(5))}, observed: awake(4).plays(17), want: outcome{5, reasons.LoadHigh, false, 0}},
		"a size of its own, no reports": {policy: v1alpha1.ActivePlayersPolicy{MaxPlayersPerServer: new(int32(5))}, observed: awake(4).with(func(o *Observed) { o.Players = 17 }), want: outcome{5, reasons.LoadHigh, false, 0}},
		"no capacity":                   {observed: awake(4), want: outcome{-1, reasons.CapacityUnknown, true, 0}},
		"no Server is Ready":            {observed: awake(4).with(func(o *Observed) { o.Ready = 0 }), want: outcome{4, reasons.ServersNotReady, false, 0}},
		"no Servers at all":             {observed: Observed{Desired: 2, Fresh: true}, want: outcome{2, reasons.ServersNotReady, false, 0}},
		"one starts, and all are full":  {observed: awake(4).with(func(o *Observed) { o.Ready = 3 }).plays(32), want: outcome{4, reasons.ServersNotReady, false, 0}},
		"one starts, and has room for more": {
			observed: awake(4).with(func(o *Observed) { o.Ready, o.Capacity, o.Players = 3, 30, 30 }), want: outcome{4, reasons.ServersNotReady, false, 0},
		},
		"one never starts, and it wouldn't have room": {
			observed: awake(10).with(func(o *Observed) { o.Ready, o.Capacity, o.Players = 9, 90, 90 }), want: outcome{11, reasons.LoadHigh, false, 0},
		},
		"none of three starts, and they would have room": {
			observed: awake(12).with(func(o *Observed) { o.Ready, o.Capacity, o.Players = 9, 90, 90 }), want: outcome{12, reasons.ServersNotReady, false, 0},
		},
		"one goes, and nobody plays":    {observed: awake(4).with(func(o *Observed) { o.Current = 5; o.Ready = 5 }).plays(0), want: outcome{4, reasons.ServersNotReady, false, 0}},
		"one more starts, nobody plays": {observed: awake(4).with(func(o *Observed) { o.Current = 5 }).plays(0), want: outcome{4, reasons.ServersNotReady, false, 0}},
		"an update, and all are full":   {observed: awake(4).with(func(o *Observed) { o.Current = 5; o.Updating = true }).plays(40), want: outcome{5, reasons.LoadHigh, false, 0}},
		"an update, and nobody plays":   {observed: awake(4).with(func(o *Observed) { o.Updating = true }).plays(0), want: outcome{4, reasons.Updating, false, 0}},
		"it waits for players": {
			policy: v1alpha1.ActivePlayersPolicy{From: v1alpha1.ActivePlayersFromFirstPlayer}, observed: awake(4).plays(0),
			want: outcome{4, reasons.WaitingForPlayers, false, 0},
		},
		"somebody has played": {
			policy: v1alpha1.ActivePlayersPolicy{From: v1alpha1.ActivePlayersFromFirstPlayer}, history: played, observed: awake(4).plays(0),
			want: outcome{3, reasons.LoadLow, false, 0},
		},
		"it doesn't wait for players": {policy: v1alpha1.ActivePlayersPolicy{From: v1alpha1.ActivePlayersFromStart}, observed: awake(4).plays(0), want: outcome{3, reasons.LoadLow, false, 0}},
		"within the cooldown, up": {
			behavior: v1alpha1.AutoscalerBehavior{ScaleUp: v1alpha1.AutoscalerScaleUp{Cooldown: seconds(60)}}, history: History{lastUp: at(-20)},
			observed: awake(4).plays(40), want: outcome{4, reasons.CoolingDown, false, 40 * time.Second},
		},
		"after the cooldown, up": {
			behavior: v1alpha1.AutoscalerBehavior{ScaleUp: v1alpha1.AutoscalerScaleUp{Cooldown: seconds(60)}}, history: History{lastUp: at(-60), lastDown: at(-1)},
			observed: awake(4).plays(40), want: outcome{5, reasons.LoadHigh, false, 0},
		},
		"within the cooldown, down": {history: History{lastDown: at(-20)}, observed: awake(4).plays(0), want: outcome{4, reasons.CoolingDown, false, 40 * time.Second}},
		"a way up cools down, too":  {history: History{lastUp: at(-20), lastDown: at(-90)}, observed: awake(4).plays(0), want: outcome{4, reasons.CoolingDown, false, 40 * time.Second}},
		"after the cooldown, down":  {history: History{lastUp: at(-60), lastDown: at(-90)}, observed: awake(4).plays(0), want: outcome{3, reasons.LoadLow, false, 0}},
		"a clock that went back":    {history: History{lastDown: at(3600)}, observed: awake(4).plays(0), want: outcome{4, reasons.CoolingDown, false, time.Minute}},
		"as many as there can be":   {policy: v1alpha1.ActivePlayersPolicy{Step: new(int32(1000))}, observed: awake(10000).plays(100000), want: outcome{10000, reasons.LoadHigh, false, 0}},
		"huge numbers, high":        {observed: awake(10000).with(func(o *Observed) { o.Players, o.Capacity = math.MaxInt64/200, math.MaxInt64/200 }), want: outcome{10000, reasons.LoadHigh, false, 0}},
		"huge numbers, low":         {observed: awake(10000).with(func(o *Observed) { o.Players, o.Capacity = 1, math.MaxInt64 }), want: outcome{9999, reasons.LoadLow, false, 0}},
		"less than nobody":          {observed: awake(4).plays(-7), want: outcome{3, reasons.LoadLow, false, 0}},
	} {
		spec := &v1alpha1.GameAutoscalerSpec{Behavior: test.behavior}
		got := activePlayers(t0, spec, &test.policy, test.history, test.observed)
		if diff := cmp.Diff(test.want, outcomeOf(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s%s", name, diff, got.message)
		}
		if got.message == "" {
			t.Errorf("%s: there is no sentence about it", name)
		}
	}
}
