package sdk

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/reports"
)

// Codes of gRPC's, as the client shows them.
const (
	invalidArgument = 3
	notFound        = 5
	alreadyExists   = 6
	outOfRange      = 11
)

func start(t *testing.T, args ...string) (*reports.Operator, *client) {
	t.Helper()
	operator := reports.New(t)
	c := startClient(t, startSidecar(t, operator, args...).GRPCPort)
	c.call("connect")
	return operator, c
}

func inState(want v1alpha1.GameState) func(reportapi.Report) bool {
	return func(r reportapi.Report) bool { return r.Game.State == want }
}

func TestAGamesLife(t *testing.T) {
	t.Parallel()
	operator, c := start(t, "--readiness=SDK", "--unreported=Denied", "--health-initial-delay=0s", "--health-period=2s", "--health-failure-threshold=1")
	operator.Wait("a game that starts", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameStarting && !r.Game.Reported && !r.DeletionAllowed
	})
	var server gameServer
	if err := json.Unmarshal(c.call("getGameServer"), &server); err != nil {
		t.Fatal(err)
	}
	want := server
	want.ObjectMeta.Name, want.ObjectMeta.Namespace, want.ObjectMeta.UID = "lobby", "games", "6f0c"
	want.ObjectMeta.Generation, want.ObjectMeta.CreationTimestamp = 4, 1900000000
	want.ObjectMeta.LabelsMap, want.ObjectMeta.AnnotationsMap = [][2]string{{"team", "red"}}, [][2]string{{"note", "hi"}}
	want.Spec.Health.PeriodSeconds, want.Spec.Health.FailureThreshold, want.Spec.Health.InitialDelaySeconds = 2, 1, 0
	want.Status.State, want.Status.Address, want.Status.Players.Capacity = "Scheduled", "203.0.113.7", 20
	if diff := cmp.Diff(want, server); diff != "" {
		t.Errorf("GameServer (-want +got):\n%s", diff)
	}
	if ports := fmt.Sprint(server.Status.PortsList); ports != "[{game 7777}]" {
		t.Errorf("ports %s", ports)
	}

	c.call("watch")
	shows := func(state string) {
		t.Helper()
		c.watches(state, func(s gameServer) bool { return s.Status.State == state })
	}
	shows("Scheduled")
	c.call("ready")
	operator.Wait("Ready", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameReady && r.Game.Reported && r.DeletionAllowed
	})
	shows("Ready")

	c.call("health")
	shows("Unhealthy")
	operator.Wait("a game that fell silent", inState(v1alpha1.GameUnhealthy))
	c.call("health")
	operator.Wait("a game that is well again", inState(v1alpha1.GameReady))
}

func TestAllocationsAndTheEnd(t *testing.T) {
	t.Parallel()
	operator, c := start(t, "--readiness=SDK")
	c.call("watch")
	c.call("ready")
	c.call("allocate")
	operator.Wait("Allocated", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameAllocated && !r.DeletionAllowed
	})
	c.call("reserve", 3600)
	operator.Wait("Reserved", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameReserved && r.Game.ReservedUntil != nil && !r.DeletionAllowed
	})
	c.call("reserve", 1)
	operator.Wait("Ready after a second", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameReady && r.DeletionAllowed
	})
	c.call("reserve", 0)
	operator.Wait("Reserved for ever", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameReserved && r.Game.ReservedUntil == nil
	})
	c.call("ready")
	operator.Wait("Ready", inState(v1alpha1.GameReady))
	c.call("allocate")
	c.call("shutdown")
	operator.Wait("Shutdown", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameShutdown && r.DeletionAllowed
	})
	c.watches("Shutdown", func(s gameServer) bool { return s.Status.State == "Shutdown" })
}

func TestADeletionIsShown(t *testing.T) {
	t.Parallel()
	operator, c := start(t)
	c.call("watch")
	c.watches("Ready", func(s gameServer) bool { return s.Status.State == "Ready" })
	operator.Tell(func(a *reportapi.Answer) { a.Shutdown = true })
	c.watches("Shutdown", func(s gameServer) bool { return s.Status.State == "Shutdown" })
	operator.Wait("that it is seen", func(r reportapi.Report) bool { return r.ShutdownSeen })
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	operator, c := start(t)
	c.call("watch")
	c.call("setLabel", "mode", "ctf")
	c.call("setAnnotation", "map", "du st")
	operator.Wait("metadata", func(r reportapi.Report) bool {
		return cmp.Equal(r.Game.Labels, map[string]string{"agones.dev/sdk-mode": "ctf"}) &&
			cmp.Equal(r.Game.Annotations, map[string]string{"agones.dev/sdk-map": "du st"})
	})
	c.watches("the label", func(s gameServer) bool {
		return slices.Contains(s.ObjectMeta.LabelsMap, [2]string{"agones.dev/sdk-mode", "ctf"}) &&
			slices.Contains(s.ObjectMeta.LabelsMap, [2]string{"team", "red"})
	})
	c.fails(invalidArgument, "setLabel", "mode", "no spaces")
	c.fails(invalidArgument, "setLabel", "no spaces", "x")
	c.fails(invalidArgument, "setAnnotation", "big", strings.Repeat("x", reportapi.MaxAnnotationBytes+1))
}

func TestPlayers(t *testing.T) {
	t.Parallel()
	operator, c := start(t)
	players := func(what string, want v1alpha1.PlayersStatus, deletable bool) {
		t.Helper()
		operator.Wait(what, func(r reportapi.Report) bool {
			return r.Game.Players != nil && cmp.Equal(*r.Game.Players, want) && r.DeletionAllowed == deletable
		})
	}
	c.gives("20", "alpha.getPlayerCapacity")
	c.gives("0", "alpha.getPlayerCount")
	c.call("alpha.setPlayerCapacity", 2)
	c.gives("2", "alpha.getPlayerCapacity")
	players("a capacity", v1alpha1.PlayersStatus{Capacity: 2}, true)
	c.gives("true", "alpha.playerConnect", "ann")
	c.gives("false", "alpha.playerConnect", "ann")
	c.gives("true", "alpha.playerConnect", "bob")
	players("two players", v1alpha1.PlayersStatus{Current: 2, Capacity: 2, IDs: []string{"ann", "bob"}}, false)
	c.fails(outOfRange, "alpha.playerConnect", "eve")
	c.gives("2", "alpha.getPlayerCount")
	c.gives("true", "alpha.isPlayerConnected", "bob")
	c.gives("false", "alpha.isPlayerConnected", "eve")
	c.gives(`["ann","bob"]`, "alpha.getConnectedPlayers")
	c.gives("true", "alpha.playerDisconnect", "ann")
	c.gives("false", "alpha.playerDisconnect", "ann")
	players("one player", v1alpha1.PlayersStatus{Current: 1, Capacity: 2, IDs: []string{"bob"}}, false)
	c.gives("true", "alpha.playerDisconnect", "bob")
	players("nobody", v1alpha1.PlayersStatus{Capacity: 2}, true)
	c.fails(outOfRange, "alpha.setPlayerCapacity", -1)
	c.fails(invalidArgument, "alpha.playerConnect", strings.Repeat("x", reportapi.MaxValueBytes+1))
}

func TestCounters(t *testing.T) {
	t.Parallel()
	operator, c := start(t)
	rooms := func(what string, want v1alpha1.Counter) {
		t.Helper()
		operator.Wait(what, func(r reportapi.Report) bool { return r.Game.Counters["rooms"] == want })
	}
	rooms("what the spec begins with", v1alpha1.Counter{Count: 1, Capacity: 4})
	c.gives("1", "beta.getCounterCount", "rooms")
	c.gives("4", "beta.getCounterCapacity", "rooms")
	c.call("beta.incrementCounter", "rooms", 3)
	rooms("an increment", v1alpha1.Counter{Count: 4, Capacity: 4})
	c.fails(outOfRange, "beta.incrementCounter", "rooms", 1)
	c.call("beta.decrementCounter", "rooms", 2)
	rooms("a decrement", v1alpha1.Counter{Count: 2, Capacity: 4})
	c.fails(outOfRange, "beta.decrementCounter", "rooms", 3)
	c.fails(outOfRange, "beta.setCounterCount", "rooms", 5)
	c.call("beta.setCounterCapacity", "rooms", 9)
	c.call("beta.setCounterCount", "rooms", 9)
	rooms("more room", v1alpha1.Counter{Count: 9, Capacity: 9})
	c.fails(outOfRange, "beta.setCounterCapacity", "rooms", -1)
	c.fails(notFound, "beta.getCounterCount", "none")
	c.fails(notFound, "beta.incrementCounter", "none", 1)
	c.gives("9", "beta.getCounterCount", "rooms")
}

func TestLists(t *testing.T) {
	t.Parallel()
	operator, c := start(t)
	maps := func(what string, want v1alpha1.List) {
		t.Helper()
		operator.Wait(what, func(r reportapi.Report) bool { return cmp.Equal(r.Game.Lists["maps"], want) })
	}
	maps("what the spec begins with", v1alpha1.List{Capacity: 3, Values: []string{"dust"}})
	c.gives("3", "beta.getListCapacity", "maps")
	c.call("beta.appendListValue", "maps", "sand")
	maps("a value more", v1alpha1.List{Capacity: 3, Values: []string{"dust", "sand"}})
	c.fails(alreadyExists, "beta.appendListValue", "maps", "sand")
	c.gives("2", "beta.getListLength", "maps")
	c.gives("true", "beta.listContains", "maps", "sand")
	c.gives("false", "beta.listContains", "maps", "snow")
	c.gives(`["dust","sand"]`, "beta.getListValues", "maps")
	// This one says what it updates with an empty mask.
	c.call("beta.setListCapacity", "maps", 2)
	maps("less room", v1alpha1.List{Capacity: 2, Values: []string{"dust", "sand"}})
	c.fails(outOfRange, "beta.appendListValue", "maps", "snow")
	c.call("beta.setListCapacity", "maps", 1)
	maps("no room for two", v1alpha1.List{Capacity: 1, Values: []string{"dust"}})
	c.fails(outOfRange, "beta.setListCapacity", "maps", 1001)
	c.call("beta.deleteListValue", "maps", "dust")
	maps("nothing", v1alpha1.List{Capacity: 1})
	c.fails(notFound, "beta.deleteListValue", "maps", "dust")
	c.fails(notFound, "beta.getListValues", "none")
	c.fails(notFound, "beta.appendListValue", "none", "x")
}
