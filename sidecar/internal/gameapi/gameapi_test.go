package gameapi

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/sidecar/internal/game"
)

// world is a sidecar's game with its server.
type world struct {
	t    *testing.T
	game *game.Game
	url  string
	code string
}

func newWorld(t *testing.T, code string) *world {
	t.Helper()
	health := game.Health{Period: 5 * time.Second, FailureThreshold: 3}
	g := game.New(game.Config{Readiness: v1alpha1.ServerReadinessSDK, Unreported: v1alpha1.DeletionAllowed, Health: health}, clock.RealClock{})
	started := time.Now().Add(-time.Minute)
	g.TakeAnswer(reportapi.Answer{Version: "1", GameStarted: &started, Server: reportapi.Server{Name: "lobby", Capacity: 20}})
	server := httpserver.New(httpserver.Options{Address: "127.0.0.1:0", Log: logr.Discard()})
	Register(server, code, g)
	ctx, cancel := context.WithCancel(context.Background())
	if err := server.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &world{t, g, "http://" + server.Addr().String(), code}
}

// call makes a call, with a code unless that is empty.
func (w *world) call(method, path, code, body string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if code != "" {
		r.Header.Set(gameapi.CodeHeader, code)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (w *world) want(status int, words, path, body string) {
	w.t.Helper()
	if got, text := w.call(http.MethodPost, path, w.code, body); got != status || !strings.Contains(text, words) {
		w.t.Errorf("%s %s: answered %d %s, want %d with %q", path, body, got, text, status, words)
	}
}

// Each call sets what the SDK's sets, and reads its words in any case.
func TestCallsSetWhatTheSDKSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gameapi.NewCode("games", "lobby"))
	is := func(state v1alpha1.GameState, deletable bool) {
		t.Helper()
		if s := w.game.Snapshot(); s.Game.State != state || s.DeletionAllowed != deletable {
			t.Errorf("the game is %s and may be deleted %t; want %s and %t", s.Game.State, s.DeletionAllowed, state, deletable)
		}
	}
	if status, text := w.call(http.MethodGet, gameapi.CheckPath, w.code, ""); status != http.StatusOK {
		t.Errorf("the check answered %d %s", status, text)
	}
	is(v1alpha1.GameStarting, true)
	w.want(200, "", gameapi.HealthPath, `{"health":"Creating"}`)
	is(v1alpha1.GameStarting, true)
	w.want(200, "", gameapi.HealthPath, `{"health":"Healthy"}`)
	is(v1alpha1.GameReady, true)
	for _, state := range []string{"Assigned", "running", "POSTMATCH"} {
		w.want(200, "", gameapi.StatePath, `{"state":"Idle"}`)
		is(v1alpha1.GameReady, true)
		w.want(200, "", gameapi.StatePath, `{"state":"`+state+`"}`)
		is(v1alpha1.GameAllocated, false)
	}
	w.want(200, "", gameapi.HealthPath, `{"health":"failed"}`)
	is(v1alpha1.GameUnhealthy, false)
	w.want(200, "", gameapi.HealthPath, `{"health":"healthy","later":1}`)
	is(v1alpha1.GameAllocated, false)
	w.want(200, "", gameapi.PlayersPath, `{"playerCount":3}`)
	if p := w.game.Snapshot().Game.Players; p == nil || p.Current != 3 || p.Capacity != 20 {
		t.Errorf("players are %+v, want 3 of 20", p)
	}
	w.want(200, "", gameapi.DeletionPath, `{"markedForDeletion":true}`)
	is(v1alpha1.GameAllocated, false)
	w.want(200, "", gameapi.PlayersPath, `{"playerCount":0}`)
	is(v1alpha1.GameShutdown, true)
	w.want(200, "", gameapi.DeletionPath, `{"markedForDeletion":false}`)
	is(v1alpha1.GameAllocated, false)
}

// What can't be done changes nothing, and the answer says what may be said.
func TestWrongCallsAreExplained(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gameapi.NewCode("games", "lobby"))
	before := w.game.Snapshot().Game
	for _, c := range []struct {
		status            int
		words, path, body string
	}{
		{400, "Idle, Assigned, Running, PostMatch", gameapi.StatePath, `{"state":"Ready"}`},
		{400, "Creating, Healthy, Failed", gameapi.HealthPath, `{"health":""}`},
		{400, `{\"playerCount\":3}`, gameapi.PlayersPath, `{}`},
		{400, `{\"playerCount\":3}`, gameapi.PlayersPath, `{"playerCount":"3"}`},
		{400, "must not be above capacity", gameapi.PlayersPath, `{"playerCount":21}`},
		{400, "from 0 to", gameapi.PlayersPath, `{"playerCount":-1}`},
		{400, `{\"markedForDeletion\":true}`, gameapi.DeletionPath, `{}`},
		{400, "the body is wrong", gameapi.DeletionPath, `null x`},
		{413, "4096 bytes", gameapi.PlayersPath, `{"playerCount":3,"x":"` + strings.Repeat("a", gameapi.MaxBodyBytes) + `"}`},
	} {
		w.want(c.status, c.words, c.path, c.body)
	}
	w.game.TakeAnswer(reportapi.Answer{Version: "2", Shutdown: true})
	w.want(409, "already", gameapi.DeletionPath, `{"markedForDeletion":false}`)
	if after := w.game.Snapshot().Game; after.State != before.State || after.Players != nil || after.Reported {
		t.Errorf("the game was %+v and is %+v", before, after)
	}
}

// Without the code nothing is set or told.
func TestWithoutTheCodeNothingIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gameapi.NewCode("games", "lobby"))
	for _, code := range []string{"", gameapi.NewCode("games", "lobby"), w.code + "x", w.code[1:]} {
		for _, path := range []string{gameapi.PlayersPath, gameapi.StatePath, gameapi.HealthPath, gameapi.DeletionPath} {
			if status, text := w.call(http.MethodPost, path, code, `{"playerCount":3,"state":"Running","health":"Failed","markedForDeletion":true}`); status != http.StatusUnauthorized {
				t.Errorf("%s with code %q answered %d %s", path, code, status, text)
			}
		}
		if status, text := w.call(http.MethodGet, gameapi.CheckPath, code, ""); status != http.StatusUnauthorized {
			t.Errorf("the check with code %q answered %d %s", code, status, text)
		}
	}
	if s := w.game.Snapshot().Game; s.State != v1alpha1.GameStarting || s.Players != nil {
		t.Errorf("the game is %+v", s)
	}
}

// A Server that didn't ask for this API has no such paths.
func TestWithoutACodeThereIsNoAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	if status, _ := w.call(http.MethodGet, gameapi.CheckPath, "", ""); status != http.StatusNotFound {
		t.Errorf("the check answered %d", status)
	}
	w.want(404, "nothing at this path", gameapi.PlayersPath, `{"playerCount":3}`)
}
