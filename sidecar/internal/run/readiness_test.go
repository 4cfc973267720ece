package run

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/sidecar/internal/game"
)

// The log says what a game is waited for, once a change, and nothing of who comes and goes.
func TestTheLogSaysWhatIsAwaited(t *testing.T) {
	g := game.New(game.Config{Readiness: v1alpha1.ServerReadinessSDK, Health: game.Health{Disabled: true}}, clock.RealClock{})
	lines := make(chan string, 100)
	log := funcr.New(func(_, line string) { lines <- line }, funcr.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		logReadiness(ctx, g, log)
	}()
	next := func(want string) {
		t.Helper()
		select {
		case line := <-lines:
			if !strings.Contains(line, want) {
				t.Errorf("logged %s, want %q", line, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%q isn't logged", want)
		}
	}
	started := time.Now().Add(-time.Minute)
	answer := reportapi.Answer{Version: "1", GameStarted: &started, SkipFull: true, Server: reportapi.Server{Capacity: 1}}
	next("sidecar started")
	g.TakeAnswer(answer)
	next("hasn't called Ready")
	g.Ready()
	next("The game takes players")
	for _, players := range []int64{1, 0, 1} { // full, not full, full
		if err := g.SetPlayers(players, nil); err != nil {
			t.Fatal(err)
		}
	}
	answer.Drain = true
	g.TakeAnswer(answer)
	next("the Server gets no new players")
	cancel()
	<-done
	if left := len(lines); left > 0 {
		t.Errorf("%d lines more, such as %s", left, <-lines)
	}
}
