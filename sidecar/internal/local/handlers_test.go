package local

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/sidecar/internal/game"
)

// call makes a call that its caller waits for as long as the context lasts.
func call(ctx context.Context, g *game.Game, method, path, body string) (int, string) {
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
	w := httptest.NewRecorder()
	NewServer(g, http.NotFoundHandler(), nil).Handler.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

// A sidecar that has just started knows neither what its game said before nor what the operator ordered.
func TestReadsWaitForWhatWasBefore(t *testing.T) {
	t.Parallel()
	before := reportapi.Answer{
		Version: "1", Shutdown: true, Drain: true, Server: reportapi.Server{Capacity: 20},
		Restored: &reportapi.Game{State: v1alpha1.GameReady, Reported: true, Players: &v1alpha1.PlayersStatus{Current: 3, Capacity: 20}},
	}
	for path, want := range map[string]string{
		"/players":      `{"current":3,"capacity":20}`,
		"/allow_delete": `{"allowed":false}`,
		"/shutdown":     `{"shutdown":true,"drain":true}`,
	} {
		g := game.New(game.Config{}, clock.RealClock{})
		impatient, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		if code, text := call(impatient, g, http.MethodGet, path, ""); code != http.StatusServiceUnavailable || !strings.Contains(text, "try again soon") {
			t.Errorf("GET %s before the operator answers: %d %s, want 503", path, code, text)
		}
		cancel()
		type result struct {
			code int
			text string
		}
		answered := make(chan result, 1)
		go func() {
			code, text := call(t.Context(), g, http.MethodGet, path, "")
			answered <- result{code, text}
		}()
		g.TakeAnswer(before)
		if got := <-answered; got.code != http.StatusOK || got.text != want {
			t.Errorf("GET %s: %d %s, want 200 %s", path, got.code, got.text, want)
		}
	}
}

func TestWhatAGameSaysIsTakenBeforeThat(t *testing.T) {
	t.Parallel()
	g := game.New(game.Config{}, clock.RealClock{})
	if code, text := call(t.Context(), g, http.MethodPut, "/players", `{"current":3}`); code != http.StatusOK || !strings.Contains(text, `"current":3`) {
		t.Errorf("PUT /players: %d %s, want 200", code, text)
	}
	if code, text := call(t.Context(), g, http.MethodPost, "/allow_delete", `{"allowed":false}`); code != http.StatusOK {
		t.Errorf("POST /allow_delete: %d %s, want 200", code, text)
	}
	if code, text := call(t.Context(), g, http.MethodPost, "/shutdown", `{"shutdown":false}`); code != http.StatusServiceUnavailable {
		t.Errorf("POST /shutdown, which takes it back: %d %s, want 503", code, text)
	}
}
