package idleness

import (
	"errors"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

func TestDecide(t *testing.T) {
	idleSignals := func() Signals {
		return Signals{
			SleepAfter: time.Minute, Handoff: v1alpha1.HandoffDirect, AwakeSince: fixture.At(-600), HasTriggers: true,
			Triggers: trigger.Reading{At: fixture.At(0), BelowSince: fixture.At(-60)},
		}
	}
	byPlayers := func(i *Signals) {
		i.HasTriggers, i.HasPlayers = false, true
		i.Players = Players{IdleSince: fixture.At(-60), Reports: Reports{Asked: fixture.At(-2)}}
	}
	with := func(changes ...func(*Signals)) func(*Signals) {
		return func(i *Signals) {
			for _, f := range changes {
				f(i)
			}
		}
	}
	for name, c := range map[string]struct {
		change     func(*Signals)
		sleep, ask bool
		again      time.Duration
	}{
		"sleeps when everything was quiet for sleepAfter": {change: func(*Signals) {}, sleep: true},
		"0s means never": {change: func(i *Signals) { i.SleepAfter = 0 }},
		"handoff Direct without a trigger never sleeps":          {change: func(i *Signals) { i.HasTriggers = false }},
		"handoff Never needs no trigger":                         {change: func(i *Signals) { i.HasTriggers, i.Handoff = false, v1alpha1.HandoffNever }, sleep: true},
		"an Allocation keeps awake":                              {change: func(i *Signals) { i.Allocated.By = "An Allocation has one of its Servers." }},
		"the last Allocation must have been gone for sleepAfter": {change: func(i *Signals) { i.Allocated.Last = fixture.At(-50) }, again: 10 * time.Second},
		"a session keeps awake":                                  {change: func(i *Signals) { i.Sessions = 1 }, again: 5 * time.Second},
		"a held client keeps awake":                              {change: func(i *Signals) { i.Queued = 1 }, again: 5 * time.Second},
		"a resolver that doesn't answer keeps awake":             {change: func(i *Signals) { i.ClientsErr = errors.New("timeout") }, again: 5 * time.Second},
		"a trigger at its threshold keeps awake":                 {change: func(i *Signals) { i.Triggers.BelowSince = time.Time{} }},
		"a trigger that can't be read keeps awake":               {change: func(i *Signals) { i.Triggers.Err = errors.New("500") }},
		"a trigger must have been below for sleepAfter":          {change: func(i *Signals) { i.Triggers.BelowSince = fixture.At(-59) }, again: time.Second},
		"the last client must have been gone for sleepAfter":     {change: func(i *Signals) { i.LastActive = fixture.At(-50) }, again: 10 * time.Second},
		"the service must have been awake for sleepAfter":        {change: func(i *Signals) { i.AwakeSince = fixture.At(-20) }, again: 40 * time.Second},
		"a trigger that was never asked is no sign of idleness":  {change: func(i *Signals) { i.Triggers = trigger.Reading{} }},
		"an autoscaler keeps awake for a time": {
			change: func(i *Signals) { i.KeptAwake = KeptAwake{Until: fixture.At(90), By: "GameAutoscaler evening"} }, again: 90 * time.Second,
		},
		"an autoscaler kept awake before": {change: func(i *Signals) { i.KeptAwake = KeptAwake{Until: fixture.At(0), By: "GameAutoscaler evening"} }, sleep: true},

		"players alone tell that a service is idle":       {change: byPlayers, sleep: true},
		"a player by a Server's status keeps awake":       {change: with(byPlayers, func(i *Signals) { i.Players.Busy = "lobby-1" })},
		"nobody must have played for sleepAfter":          {change: with(byPlayers, func(i *Signals) { i.Players.IdleSince = fixture.At(-58) }), again: 2 * time.Second},
		"nobody is asked before that":                     {change: with(byPlayers, func(i *Signals) { i.Players.IdleSince, i.Players.Reports = fixture.At(-58), Reports{} }), again: 2 * time.Second},
		"reports that were never asked for are asked for": {change: with(byPlayers, func(i *Signals) { i.Players.Reports = Reports{} }), ask: true, again: reportsFor},
		"reports of some seconds ago are asked for again": {change: with(byPlayers, func(i *Signals) { i.Players.Reports.Asked = fixture.At(-3.5) }), ask: true, again: reportsFor},
		"a replica that doesn't answer keeps awake":       {change: with(byPlayers, func(i *Signals) { i.Players.Reports.Err = errors.New("timeout") }), again: 5 * time.Second},
		"a player whom a replica knows of keeps awake":    {change: with(byPlayers, func(i *Signals) { i.Players.Reports.Busy = "lobby-1" }), again: 5 * time.Second},
		"a Server that is silent keeps awake":             {change: with(byPlayers, func(i *Signals) { i.Players.Reports.Silent = []string{"lobby-1"} }), again: 5 * time.Second},
		"a Server that was silent is asked for again": {change: with(byPlayers, func(i *Signals) {
			i.Players.IdleSince, i.Players.Reports = fixture.At(-4), Reports{Asked: fixture.At(-4), Silent: []string{"lobby-1"}}
		}), ask: true, again: reportsFor},
		"a game that was just started keeps awake":   {change: with(byPlayers, func(i *Signals) { i.Players.Reports.young = []string{"lobby-1"} }), again: 5 * time.Second},
		"players don't stand in for a trigger":       {change: with(byPlayers, func(i *Signals) { i.HasTriggers, i.Triggers.BelowSince = true, time.Time{} })},
		"a trigger doesn't stand in for the players": {change: with(byPlayers, func(i *Signals) { i.HasTriggers, i.Players.Busy = true, "lobby-1" })},
		"what was before the process started counts by the status, once it has watched for a while": {change: func(i *Signals) {
			i.SleepAfter, i.IdleSince, i.Triggers.BelowSince = 10*time.Minute, fixture.At(-600), fixture.At(-300)
		}, sleep: true},
		"not before it has": {change: func(i *Signals) {
			i.SleepAfter, i.IdleSince, i.Triggers.BelowSince = 10*time.Minute, fixture.At(-600), fixture.At(-290)
		}, again: 10 * time.Second},
		"nor before sleepAfter": {change: func(i *Signals) {
			i.SleepAfter, i.IdleSince, i.Triggers.BelowSince = 10*time.Minute, fixture.At(-590), fixture.At(-300)
		}, again: 10 * time.Second},
		"nor where a client has come since": {change: func(i *Signals) {
			i.SleepAfter, i.IdleSince, i.Triggers.BelowSince, i.LastActive = 10*time.Minute, fixture.At(-600), fixture.At(-300), fixture.At(-310)
		}, again: 5 * time.Minute},
		"nor where it was woken since": {change: func(i *Signals) {
			i.SleepAfter, i.IdleSince, i.Triggers.BelowSince, i.AwakeSince = 10*time.Minute, fixture.At(-600), fixture.At(-300), fixture.At(-310)
		}, again: 5 * time.Minute},
		"nor where somebody may have used it unseen since": {change: func(i *Signals) {
			i.SleepAfter, i.IdleSince, i.Triggers.BelowSince, i.UnblockedAt = 10*time.Minute, fixture.At(-600), fixture.At(-300), fixture.At(-310)
		}, again: 5 * time.Minute},
		"a short time is watched in full": {change: func(i *Signals) { i.IdleSince, i.Triggers.BelowSince = fixture.At(-600), fixture.At(-59) }, again: time.Second},
		"so it is with resolvers that have just started": {change: func(i *Signals) {
			i.HasTriggers, i.Handoff, i.SleepAfter, i.IdleSince, i.Watched = false, v1alpha1.HandoffNever, 10*time.Minute, fixture.At(-600), fixture.At(-300)
		}, sleep: true},
		"what the Servers say is nothing where not asked for": {change: func(i *Signals) { i.Players.Busy = "lobby-1" }, sleep: true},
	} {
		t.Run(name, func(t *testing.T) {
			in := idleSignals()
			c.change(&in)
			got := Decide(fixture.T0, in)
			if got.Sleep != c.sleep || got.RequeueAfter != c.again || got.AskPlayers != c.ask || got.Reason == "" {
				t.Errorf("decide = %+v, want sleep %v, again in %v, and a reason", got, c.sleep, c.again)
			}
		})
	}
}
