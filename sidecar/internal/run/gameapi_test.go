package run

import (
	"net/http"
	"strings"
	"testing"

	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/reports"
)

// Where its environment has a code, a sidecar takes on its public port what is said with that, and
// reports it. Else there is no such path.
func TestAGameSpeaksWithItsCode(t *testing.T) {
	code := gameapi.NewCode("games", "lobby")
	operator := reports.New(t)
	with := startIn(t, operator, func(name string) (string, bool) {
		if name == gameapi.CodeEnv {
			return code, true
		}
		return environment(name)
	})
	say := func(s *sidecar) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.public+gameapi.PlayersPath, strings.NewReader(`{"playerCount":3}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(gameapi.CodeHeader, code)
		answer, err := s.transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil {
			t.Error(err)
		}
		return answer.StatusCode
	}
	if status := say(with); status != http.StatusOK {
		t.Errorf("answered %d", status)
	}
	operator.Wait("three players", func(r reportapi.Report) bool { return r.Game.Players != nil && r.Game.Players.Current == 3 })
	if status := say(start(t, reports.New(t))); status != http.StatusNotFound {
		t.Errorf("a sidecar without a code answered %d", status)
	}
}
