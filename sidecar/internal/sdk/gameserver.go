package sdk

import (
	"maps"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/sdk/sdkpb"
)

// States in the SDK's terms.
const (
	stateScheduled = "Scheduled"
	stateReady     = "Ready"
	stateAllocated = "Allocated"
	stateReserved  = "Reserved"
	stateShutdown  = "Shutdown"
	stateUnhealthy = "Unhealthy"
)

// state is the game's state, except that a Server which is being deleted is in Shutdown
// whatever the game's state is, and that a Ready game which an Allocation has is Allocated: games
// written for Agones wait for that. The Server's own state doesn't tell, because for a moment after
// the game's Ready it is what the game was before.
func state(s game.Snapshot) string {
	if s.LastAnswer.Shutdown {
		return stateShutdown
	}
	switch s.Game.State {
	case v1alpha1.GameReady:
		if s.LastAnswer.Server.Allocated {
			return stateAllocated
		}
		return stateReady
	case v1alpha1.GameAllocated:
		return stateAllocated
	case v1alpha1.GameReserved:
		return stateReserved
	case v1alpha1.GameShutdown:
		return stateShutdown
	case v1alpha1.GameUnhealthy:
		return stateUnhealthy
	case v1alpha1.GameStarting:
	}
	return stateScheduled
}

// merged is the object's metadata with what the game has set since.
func merged(object, set map[string]string) map[string]string {
	out := maps.Clone(object)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, set)
	return out
}

// gameServer is the Server in the SDK's form.
func (s *Server) gameServer(snapshot game.Snapshot) *sdkpb.GameServer {
	server := snapshot.LastAnswer.Server
	seconds := func(d time.Duration) int32 { return int32(d / time.Second) } //nolint:gosec // at most a day
	out := &sdkpb.GameServer{
		ObjectMeta: &sdkpb.GameServer_ObjectMeta{
			Name: server.Name, Namespace: server.Namespace, Uid: server.UID,
			ResourceVersion: snapshot.LastAnswer.Version, Generation: server.Generation,
			CreationTimestamp: server.CreationTimestamp.Unix(),
			Annotations:       merged(server.Annotations, snapshot.Game.Annotations),
			Labels:            merged(server.Labels, snapshot.Game.Labels),
		},
		Spec: &sdkpb.GameServer_Spec{Health: &sdkpb.GameServer_Spec_Health{
			Disabled: s.health.Disabled, PeriodSeconds: seconds(s.health.Period),
			FailureThreshold:    int32(s.health.FailureThreshold), //nolint:gosec // at most 1000
			InitialDelaySeconds: seconds(s.health.InitialDelay),
		}},
		Status: &sdkpb.GameServer_Status{State: state(snapshot), Address: server.Address},
	}
	if server.DeletionTimestamp != nil {
		out.ObjectMeta.DeletionTimestamp = server.DeletionTimestamp.Unix()
	}
	if server.PodIP != "" {
		out.Status.Addresses = append(out.Status.Addresses, &sdkpb.GameServer_Status_Address{Type: "PodIP", Address: server.PodIP})
	}
	for _, port := range server.Ports {
		out.Status.Ports = append(out.Status.Ports, &sdkpb.GameServer_Status_Port{Name: port.Name, Port: port.Port})
	}
	out.Status.Players = &sdkpb.GameServer_Status_PlayerStatus{Capacity: int64(snapshot.Capacity)}
	if players := snapshot.Game.Players; players != nil {
		out.Status.Players = &sdkpb.GameServer_Status_PlayerStatus{
			Count: int64(players.Current), Capacity: int64(players.Capacity), Ids: players.IDs,
		}
	}
	for name, c := range snapshot.Game.Counters {
		if out.Status.Counters == nil {
			out.Status.Counters = map[string]*sdkpb.GameServer_Status_CounterStatus{}
		}
		out.Status.Counters[name] = &sdkpb.GameServer_Status_CounterStatus{Count: c.Count, Capacity: c.Capacity}
	}
	for name, l := range snapshot.Game.Lists {
		if out.Status.Lists == nil {
			out.Status.Lists = map[string]*sdkpb.GameServer_Status_ListStatus{}
		}
		out.Status.Lists[name] = &sdkpb.GameServer_Status_ListStatus{Capacity: l.Capacity, Values: l.Values}
	}
	return out
}
