package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/sidecar/internal/sdk/alphapb"
	"dormouse.dev/dormouse/sidecar/internal/sdk/betapb"
	"dormouse.dev/dormouse/sidecar/internal/sdk/sdkpb"
	"dormouse.dev/dormouse/test/reports"
)

func inState(want v1alpha1.GameState) func(reportapi.Report) bool {
	return func(r reportapi.Report) bool { return r.Game.State == want }
}

// theServer is what clients are told of reports.New's.
func theServer(operator *reportapi.Answer) *sdkpb.GameServer {
	return &sdkpb.GameServer{
		ObjectMeta: &sdkpb.GameServer_ObjectMeta{
			Name: "lobby", Namespace: "games", Uid: "6f0c", Generation: 4, CreationTimestamp: 1900000000,
			ResourceVersion: operator.Version,
			Labels:          map[string]string{"team": "red"}, Annotations: map[string]string{"note": "hi"},
		},
		Spec: &sdkpb.GameServer_Spec{Health: &sdkpb.GameServer_Spec_Health{PeriodSeconds: 5, FailureThreshold: 3, InitialDelaySeconds: 30}},
		Status: &sdkpb.GameServer_Status{
			State: "Scheduled", Address: "203.0.113.7",
			Ports:     []*sdkpb.GameServer_Status_Port{{Name: "game", Port: 7777}},
			Addresses: []*sdkpb.GameServer_Status_Address{{Type: "PodIP", Address: "10.0.0.9"}},
			Players:   &sdkpb.GameServer_Status_PlayerStatus{Capacity: 20},
			Counters:  map[string]*sdkpb.GameServer_Status_CounterStatus{"rooms": {Count: 1, Capacity: 4}},
			Lists:     map[string]*sdkpb.GameServer_Status_ListStatus{"maps": {Capacity: 3, Values: []string{"dust"}}},
		},
	}
}

func wantGameServer(t *testing.T, got, want *sdkpb.GameServer) {
	t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("GameServer (-want +got):\n%s", diff)
	}
}

func TestTheSDKsLife(t *testing.T) {
	operator := reports.New(t)
	s := start(t, operator, "--readiness=SDK", "--unreported=Denied")
	client := sdkpb.NewSDKClient(s.dial())
	ctx := t.Context()
	watch, err := client.WatchGameServer(ctx, &sdkpb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	next := func() *sdkpb.GameServer {
		t.Helper()
		got, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := theServer(&reportapi.Answer{Version: "1"})
	wantGameServer(t, next(), want)
	got, err := client.GetGameServer(ctx, &sdkpb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	wantGameServer(t, got, want)

	steps := []struct {
		name  string
		call  func() error
		state v1alpha1.GameState
		shows string
	}{
		{"Ready", func() error { _, err := client.Ready(ctx, &sdkpb.Empty{}); return err }, v1alpha1.GameReady, "Ready"},
		{"Allocate", func() error { _, err := client.Allocate(ctx, &sdkpb.Empty{}); return err }, v1alpha1.GameAllocated, "Allocated"},
		{"Reserve", func() error { _, err := client.Reserve(ctx, &sdkpb.Duration{Seconds: 3600}); return err }, v1alpha1.GameReserved, "Reserved"},
		{"Reserve 1 s", func() error { _, err := client.Reserve(ctx, &sdkpb.Duration{Seconds: 1}); return err }, v1alpha1.GameReady, "Ready"},
		{"Shutdown", func() error { _, err := client.Shutdown(ctx, &sdkpb.Empty{}); return err }, v1alpha1.GameShutdown, "Shutdown"},
	}
	for _, step := range steps {
		if err := step.call(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		operator.Wait(step.name, inState(step.state))
		// The 1 s of a reservation may still show first.
		for got = next(); got.GetStatus().GetState() == "Reserved" && step.shows == "Ready"; {
			got = next()
		}
		want.Status.State = step.shows
		wantGameServer(t, got, want)
	}
	operator.Wait("leave to delete", func(r reportapi.Report) bool { return r.DeletionAllowed })
	deleted := time.Unix(1900000100, 0)
	operator.Tell(func(a *reportapi.Answer) { a.Server.DeletionTimestamp = &deleted; a.Shutdown = true })
	want.ObjectMeta.DeletionTimestamp, want.ObjectMeta.ResourceVersion = 1900000100, "1'"
	wantGameServer(t, next(), want)
}

// Games written for Agones wait until they see that they are Allocated. The Server's state, which follows the
// game's own word late, shows nothing.
func TestAnAllocationShowsThroughTheSDK(t *testing.T) {
	operator := reports.New(t)
	s := start(t, operator, "--readiness=SDK")
	client := sdkpb.NewSDKClient(s.dial())
	watch, err := client.WatchGameServer(t.Context(), &sdkpb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	allocation := func(has bool) func() error {
		return func() error {
			operator.Tell(func(a *reportapi.Answer) { a.Server.Allocated = has })
			return nil
		}
	}
	late := func(state v1alpha1.ServerState) func() error {
		return func() error {
			operator.Tell(func(a *reportapi.Answer) { a.Server.State = state })
			return nil
		}
	}
	ready := func() error { _, err := client.Ready(t.Context(), &sdkpb.Empty{}); return err }
	allocate := func() error { _, err := client.Allocate(t.Context(), &sdkpb.Empty{}); return err }
	for _, step := range []struct {
		name  string
		do    func() error
		shows string
	}{
		{"at first", nil, "Scheduled"},
		{"an Allocation of a game that isn't Ready", allocation(true), "Scheduled"},
		{"it is over", allocation(false), "Scheduled"},
		{"Ready", ready, "Ready"},
		{"an Allocation", allocation(true), "Allocated"},
		{"it is over", allocation(false), "Ready"},
		{"Allocate", allocate, "Allocated"},
		{"the operator has seen that", late(v1alpha1.ServerAllocated), "Allocated"},
		{"Ready, which the operator hasn't seen", ready, "Ready"},
		{"an Allocation that begins before that", allocation(true), "Allocated"},
	} {
		if step.do != nil {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		got, err := watch.Recv()
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got.GetStatus().GetState() != step.shows {
			t.Fatalf("%s: it shows %s, want %s", step.name, got.GetStatus().GetState(), step.shows)
		}
	}
}

func TestMetadataThroughTheSDK(t *testing.T) {
	operator := reports.New(t)
	s := start(t, operator)
	client := sdkpb.NewSDKClient(s.dial())
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := client.SetLabel(ctx, &sdkpb.KeyValue{Key: "mode", Value: "ctf"})
			return err
		},
		func(ctx context.Context) error {
			_, err := client.SetAnnotation(ctx, &sdkpb.KeyValue{Key: "map", Value: "du st"})
			return err
		},
	} {
		if err := call(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	operator.Wait("metadata", func(r reportapi.Report) bool {
		return r.Game.Labels["agones.dev/sdk-mode"] == "ctf" && r.Game.Annotations["agones.dev/sdk-map"] == "du st"
	})
	got, err := client.GetGameServer(t.Context(), &sdkpb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"team": "red", "agones.dev/sdk-mode": "ctf"}, got.GetObjectMeta().GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	_, err = client.SetLabel(t.Context(), &sdkpb.KeyValue{Key: "mode", Value: "no spaces"})
	wantCode(t, err, codes.InvalidArgument)
	_, err = client.SetAnnotation(t.Context(), &sdkpb.KeyValue{Key: "big", Value: strings.Repeat("x", 300<<10)})
	wantCode(t, err, codes.ResourceExhausted)
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("code %s (%v), want %s", got, err, want)
	}
}

func TestPingsThroughTheSDK(t *testing.T) {
	operator := reports.New(t)
	s := start(t, operator, "--health-initial-delay=0s", "--health-period=1s", "--health-failure-threshold=1")
	stream, err := sdkpb.NewSDKClient(s.dial()).Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ping := func() {
		t.Helper()
		if err := stream.Send(&sdkpb.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	ping()
	broken := operator.Wait("a broken game", inState(v1alpha1.GameUnhealthy))
	if !strings.Contains(broken.Game.Message, "no health ping for 1s") {
		t.Errorf("message %q", broken.Game.Message)
	}
	if status, text := s.call("GET", "/health", ""); status != 503 || !strings.Contains(text, "no health ping") {
		t.Errorf("health %d %s", status, text)
	}
	ping()
	operator.Wait("a healed game", inState(v1alpha1.GameReady))
	operator.Wait("a game that is broken again", inState(v1alpha1.GameUnhealthy))
	s.want("POST", "/health", "{}", 200, "{}")
	operator.Wait("a game that REST healed", inState(v1alpha1.GameReady))
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Error(err)
	}
}

func TestPlayersThroughTheSDK(t *testing.T) {
	operator := reports.New(t)
	s := start(t, operator)
	client := alphapb.NewSDKClient(s.dial())
	ctx := t.Context()
	is := func(what string, got *alphapb.Bool, err error, want bool) {
		t.Helper()
		if err != nil || got.GetBool() != want {
			t.Errorf("%s: %t, %v; want %t", what, got.GetBool(), err, want)
		}
	}
	id := func(name string) *alphapb.PlayerID { return &alphapb.PlayerID{PlayerID: name} }
	if got, err := client.GetPlayerCapacity(ctx, &alphapb.Empty{}); err != nil || got.GetCount() != 20 {
		t.Errorf("capacity %d, %v", got.GetCount(), err)
	}
	if _, err := client.SetPlayerCapacity(ctx, &alphapb.Count{Count: 2}); err != nil {
		t.Fatal(err)
	}
	got, err := client.PlayerConnect(ctx, id("ann"))
	is("connect", got, err, true)
	got, err = client.PlayerConnect(ctx, id("ann"))
	is("connect again", got, err, false)
	got, err = client.PlayerConnect(ctx, id("bob"))
	is("connect another", got, err, true)
	_, err = client.PlayerConnect(ctx, id("eve"))
	wantCode(t, err, codes.OutOfRange)
	got, err = client.IsPlayerConnected(ctx, id("bob"))
	is("bob is there", got, err, true)
	operator.Wait("two players", func(r reportapi.Report) bool {
		return cmp.Equal(r.Game.Players, &v1alpha1.PlayersStatus{Current: 2, Capacity: 2, IDs: []string{"ann", "bob"}}) && !r.DeletionAllowed
	})
	got, err = client.PlayerDisconnect(ctx, id("ann"))
	is("disconnect", got, err, true)
	got, err = client.PlayerDisconnect(ctx, id("ann"))
	is("disconnect again", got, err, false)
	if got, err := client.GetPlayerCount(ctx, &alphapb.Empty{}); err != nil || got.GetCount() != 1 {
		t.Errorf("count %d, %v", got.GetCount(), err)
	}
	list, err := client.GetConnectedPlayers(ctx, &alphapb.Empty{})
	if diff := cmp.Diff([]string{"bob"}, list.GetList()); err != nil || diff != "" {
		t.Errorf("players, %v (-want +got):\n%s", err, diff)
	}
	_, err = client.SetPlayerCapacity(ctx, &alphapb.Count{Count: -1})
	wantCode(t, err, codes.OutOfRange)
	_, err = client.PlayerConnect(ctx, id(""))
	wantCode(t, err, codes.InvalidArgument)
}

func TestCountersAndListsThroughTheSDK(t *testing.T) {
	operator := reports.New(t)
	s := start(t, operator)
	client := betapb.NewSDKClient(s.dial())
	ctx := t.Context()
	update := func(u *betapb.CounterUpdateRequest) (*betapb.Counter, error) {
		return client.UpdateCounter(ctx, &betapb.UpdateCounterRequest{CounterUpdateRequest: u})
	}
	counter, err := update(&betapb.CounterUpdateRequest{Name: "rooms", CountDiff: 2})
	if err != nil || counter.GetCount() != 3 || counter.GetName() != "rooms" || counter.GetCapacity() != 4 {
		t.Errorf("counter %v, %v", counter, err)
	}
	_, err = update(&betapb.CounterUpdateRequest{Name: "rooms", CountDiff: 2})
	wantCode(t, err, codes.OutOfRange)
	_, err = update(&betapb.CounterUpdateRequest{Name: "rooms", Count: wrapperspb.Int64(0), Capacity: wrapperspb.Int64(9)})
	wantCode(t, err, codes.OK)
	_, err = update(&betapb.CounterUpdateRequest{Name: "rooms"})
	wantCode(t, err, codes.InvalidArgument)
	_, err = client.UpdateCounter(ctx, &betapb.UpdateCounterRequest{})
	wantCode(t, err, codes.InvalidArgument)
	_, err = client.GetCounter(ctx, &betapb.GetCounterRequest{Name: "none"})
	wantCode(t, err, codes.NotFound)

	_, err = client.AddListValue(ctx, &betapb.AddListValueRequest{Name: "maps", Value: "sand"})
	wantCode(t, err, codes.OK)
	_, err = client.AddListValue(ctx, &betapb.AddListValueRequest{Name: "maps", Value: "sand"})
	wantCode(t, err, codes.AlreadyExists)
	_, err = client.RemoveListValue(ctx, &betapb.RemoveListValueRequest{Name: "maps", Value: "snow"})
	wantCode(t, err, codes.NotFound)
	_, err = client.GetList(ctx, &betapb.GetListRequest{Name: "none"})
	wantCode(t, err, codes.NotFound)

	change := func(list *betapb.List, paths ...string) (*betapb.List, error) {
		list.Name = "maps"
		return client.UpdateList(ctx, &betapb.UpdateListRequest{List: list, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
	}
	updates := map[string]struct {
		list  *betapb.List
		paths []string
		want  *betapb.List
		code  codes.Code
	}{
		"capacity only":         {&betapb.List{Capacity: 5, Values: []string{"x"}}, []string{"capacity"}, &betapb.List{Capacity: 5, Values: []string{"dust", "sand"}}, codes.OK},
		"values only":           {&betapb.List{Capacity: 1, Values: []string{"x", "y"}}, []string{"values"}, &betapb.List{Capacity: 3, Values: []string{"x", "y"}}, codes.OK},
		"no values":             {&betapb.List{}, []string{"values"}, &betapb.List{Capacity: 3}, codes.OK},
		"both":                  {&betapb.List{Capacity: 1, Values: []string{"x"}}, []string{"capacity", "values"}, &betapb.List{Capacity: 1, Values: []string{"x"}}, codes.OK},
		"an empty mask":         {&betapb.List{Capacity: 7}, nil, &betapb.List{Capacity: 7, Values: []string{"dust", "sand"}}, codes.OK},
		"an empty mask of none": {&betapb.List{}, nil, nil, codes.InvalidArgument},
		"a field that isn't":    {&betapb.List{Capacity: 1}, []string{"size"}, nil, codes.InvalidArgument},
		"too much room":         {&betapb.List{Capacity: 1001}, []string{"capacity"}, nil, codes.OutOfRange},
		"too many values":       {&betapb.List{Values: []string{"w", "x", "y", "z"}}, []string{"values"}, nil, codes.OutOfRange},
	}
	for name, u := range updates {
		_, err := change(&betapb.List{Capacity: 3, Values: []string{"dust", "sand"}}, "capacity", "values")
		wantCode(t, err, codes.OK)
		got, err := change(u.list, u.paths...)
		wantCode(t, err, u.code)
		if u.want != nil {
			u.want.Name = "maps"
			if diff := cmp.Diff(u.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", name, diff)
			}
		}
	}
	_, err = change(&betapb.List{Capacity: 2, Values: []string{"last"}}, "capacity", "values")
	wantCode(t, err, codes.OK)
	operator.Wait("counters and lists", func(r reportapi.Report) bool {
		return cmp.Equal(r.Game.Counters, map[string]v1alpha1.Counter{"rooms": {Count: 0, Capacity: 9}}) &&
			cmp.Equal(r.Game.Lists, map[string]v1alpha1.List{"maps": {Capacity: 2, Values: []string{"last"}}})
	})
}

// TestASlowWatcherSeesTheNewest floods a watcher that doesn't read.
func TestASlowWatcherSeesTheNewest(t *testing.T) {
	s := start(t, reports.New(t))
	client := sdkpb.NewSDKClient(s.dial())
	watch, err := client.WatchGameServer(t.Context(), &sdkpb.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	const changes = 300
	large := strings.Repeat("x", 4000)
	for i := range changes {
		if _, err := client.SetAnnotation(t.Context(), &sdkpb.KeyValue{Key: "n", Value: fmt.Sprintf("%04d%s", i, large)}); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for last := ""; last != fmt.Sprintf("%04d", changes-1); seen++ {
		got, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if value := got.GetObjectMeta().GetAnnotations()["agones.dev/sdk-n"]; value != "" {
			if value[:4] < last {
				t.Errorf("%s came after %s", value[:4], last)
			}
			last = value[:4]
		}
	}
	if seen >= changes {
		t.Errorf("the watcher got all %d, though it read none of them in time", seen)
	}
}

func TestCallsThatNeedWhatWas(t *testing.T) {
	operator := reports.New(t)
	operator.Silent(true)
	s := start(t, operator, "--readiness=SDK")
	conn := s.dial()
	stable, beta := sdkpb.NewSDKClient(conn), betapb.NewSDKClient(conn)
	// What needs nothing is taken at once.
	if _, err := stable.Ready(t.Context(), &sdkpb.Empty{}); err != nil {
		t.Fatal(err)
	}
	if _, err := alphapb.NewSDKClient(conn).PlayerConnect(t.Context(), &alphapb.PlayerID{PlayerID: "ann"}); err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := stable.GetGameServer(impatient, &sdkpb.Empty{})
	wantCode(t, err, codes.DeadlineExceeded)
	// Who waits a little is answered as soon as the operator has.
	answered := make(chan error, 1)
	go func() {
		_, err := stable.GetGameServer(t.Context(), &sdkpb.Empty{})
		answered <- err
	}()
	_, err = beta.GetCounter(t.Context(), &betapb.GetCounterRequest{Name: "rooms"})
	wantCode(t, err, codes.Unavailable)
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("error %v", err)
	}
	go func() {
		_, err := stable.GetGameServer(t.Context(), &sdkpb.Empty{})
		answered <- err
	}()
	operator.Silent(false)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	operator.Wait("what was said before", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameReady && r.Game.Players != nil && slices.Equal(r.Game.Players.IDs, []string{"ann"})
	})
}

func TestASidecarThatStartsAgainGoesOn(t *testing.T) {
	operator := reports.New(t)
	first := start(t, operator, "--readiness=SDK")
	client := alphapb.NewSDKClient(first.dial())
	if _, err := client.PlayerConnect(t.Context(), &alphapb.PlayerID{PlayerID: "ann"}); err != nil {
		t.Fatal(err)
	}
	first.want("POST", "/allocate", "{}", 200, "{}")
	last := operator.Wait("all", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameAllocated && r.Game.Players != nil
	})
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	operator.Tell(func(a *reportapi.Answer) { a.Restored = &last.Game })
	second := start(t, operator, "--readiness=SDK")
	again := operator.Wait("a report of another", func(r reportapi.Report) bool { return r.Instance != last.Instance })
	if diff := cmp.Diff(last.Game, again.Game); diff != "" {
		t.Errorf("the second's first report (-first +second):\n%s", diff)
	}
	second.want("GET", "/alpha/player/connected", "", 200, `{"list":["ann"]}`)
	if got := operator.Restores(); got != 2 {
		t.Errorf("%d reports asked for what was, want 2", got)
	}
	// The game's container starts again, too.
	later := time.Now().Add(time.Minute).Truncate(time.Second)
	operator.Tell(func(a *reportapi.Answer) { a.GameStarted = &later })
	operator.Wait("a new game", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameStarting && r.Game.Players == nil && r.DeletionAllowed
	})
}
