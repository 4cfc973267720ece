package schedule

import (
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/env"
)

// Games are what players come to. Between them they have all that changes how a
// service sleeps and wakes: a selector or none, both handoffs, one port or
// more, and a boot that takes a while.
//
// Where Kubernetes writes the endpoints, kube-proxy may send a player to a pod
// in the last second before it ends: those games sleep before they stop and let
// players finish, as the design asks for. The others need neither.
func Games(namespace string) []env.Game {
	gs := []env.Game{
		{
			Name: "lobby", TCP: []int32{7000}, UDP: []int32{7001}, SleepAfter: 5 * time.Second,
			Probe: true, Trigger: true, PreStop: 5 * time.Second, Linger: time.Minute,
		},
		{
			Name: "arena", TCP: []int32{7000}, UDP: []int32{7001}, SleepAfter: 6 * time.Second,
			Probe: true, Trigger: true, Selectorless: true,
		},
		{
			Name: "relay", TCP: []int32{7000}, UDP: []int32{7001}, SleepAfter: 5 * time.Second,
			Selectorless: true, Handoff: v1alpha1.HandoffNever,
		},
		{
			Name: "twin", TCP: []int32{7000, 7002}, SleepAfter: 5 * time.Second,
			Probe: true, Trigger: true, Selectorless: true,
		},
		{
			Name: "slow", TCP: []int32{7000}, UDP: []int32{7001}, SleepAfter: 8 * time.Second, BootDelay: 4 * time.Second,
			Probe: true, Trigger: true, PreStop: 5 * time.Second, Linger: time.Minute,
		},
		{
			Name: "race", UDP: []int32{7001}, SleepAfter: 6 * time.Second,
			Probe: true, Trigger: true, Selectorless: true,
		},
	}
	for i := range gs {
		gs[i].Namespace = namespace
	}
	return gs
}

func doorsOf(gs []env.Game) []doors {
	all := make([]doors, len(gs))
	for i, g := range gs {
		all[i] = doors{tcp: g.TCP, udp: g.UDP}
	}
	return all
}
