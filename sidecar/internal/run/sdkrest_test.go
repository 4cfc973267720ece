package run

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/reports"
)

func TestTheSDKOverREST(t *testing.T) {
	operator := reports.New(t)
	s := start(t, operator, "--readiness=SDK")
	// Names are those of the .proto files, which is what REST clients read.
	want := `{"object_meta":{"name":"lobby","namespace":"games","uid":"6f0c","resource_version":"1","generation":"4",` +
		`"creation_timestamp":"1900000000","annotations":{"note":"hi"},"labels":{"team":"red"}},` +
		`"spec":{"health":{"period_seconds":5,"failure_threshold":3,"initial_delay_seconds":30}},` +
		`"status":{"state":"Scheduled","address":"203.0.113.7","ports":[{"name":"game","port":7777}],"players":{"capacity":"20"},` +
		`"counters":{"rooms":{"count":"1","capacity":"4"}},"lists":{"maps":{"capacity":"3","values":["dust"]}},` +
		`"addresses":[{"type":"PodIP","address":"10.0.0.9"}]}}`
	if _, got := s.call("GET", "/gameserver", ""); compact(t, got) != compact(t, want) {
		t.Errorf("GameServer %s, want %s", got, want)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"POST", "/ready", `{}`, 200, `{}`},
		{"POST", "/allocate", `{}`, 200, `{}`},
		{"POST", "/reserve", `{"seconds":"5"}`, 200, `{}`},
		{"POST", "/reserve", `{"seconds":0}`, 200, `{}`},
		{"PUT", "/metadata/label", `{"key":"mode","value":"ctf"}`, 200, `{}`},
		{"PUT", "/metadata/annotation", `{"key":"map","value":"dust"}`, 200, `{}`},
		{"PUT", "/metadata/label", `{"key":"mode","value":"!"}`, 400, ``},
		{"POST", "/health", `{}`, 200, `{}`},
		{"PUT", "/alpha/player/capacity", `{"count":2}`, 200, `{}`},
		{"GET", "/alpha/player/capacity", ``, 200, `{"count":"2"}`},
		{"POST", "/alpha/player/connect", `{"playerID":"a b"}`, 200, `{"bool":true}`},
		{"POST", "/alpha/player/connect", `{"playerID":"a b"}`, 200, `{}`},
		{"GET", "/alpha/player/connected/a%20b", ``, 200, `{"bool":true}`},
		{"GET", "/alpha/player/connected", ``, 200, `{"list":["a b"]}`},
		{"GET", "/alpha/player/count", ``, 200, `{"count":"1"}`},
		{"POST", "/alpha/player/disconnect", `{"playerID":"a b"}`, 200, `{"bool":true}`},
		{"GET", "/v1beta1/counters/rooms", ``, 200, `{"name":"rooms","count":"1","capacity":"4"}`},
		{"PATCH", "/v1beta1/counters/rooms", `{"countDiff":"2"}`, 200, `{"name":"rooms","count":"3","capacity":"4"}`},
		{"PATCH", "/v1beta1/counters/rooms", `{"count":"0"}`, 200, `{"name":"rooms","capacity":"4"}`},
		{"PATCH", "/v1beta1/counters/rooms", `{"capacity":"9"}`, 200, `{"name":"rooms","capacity":"9"}`},
		{"PATCH", "/v1beta1/counters/rooms", `{"count":"10"}`, 400, ``},
		{"GET", "/v1beta1/counters/none", ``, 404, ``},
		{"GET", "/v1beta1/lists/maps", ``, 200, `{"name":"maps","capacity":"3","values":["dust"]}`},
		{"POST", "/v1beta1/lists/maps:addValue", `{"value":"sand"}`, 200, `{"name":"maps","capacity":"3","values":["dust","sand"]}`},
		{"POST", "/v1beta1/lists/maps:addValue", `{"value":"sand"}`, 409, ``},
		{"POST", "/v1beta1/lists/maps:removeValue", `{"value":"dust"}`, 200, `{"name":"maps","capacity":"3","values":["sand"]}`},
		{"PATCH", "/v1beta1/lists/maps", `{"capacity":"5"}`, 200, `{"name":"maps","capacity":"5","values":["sand"]}`},
		{"PATCH", "/v1beta1/lists/maps", `{"name":"maps","values":["a","b"]}`, 200, `{"name":"maps","capacity":"5","values":["a","b"]}`},
		{"PATCH", "/v1beta1/lists/maps?updateMask=capacity", `{"capacity":"0"}`, 200, `{"name":"maps"}`},
	} {
		status, answer := s.call(c.method, c.path, c.body)
		if status != c.status || (c.answer != "" && compact(t, answer) != compact(t, c.answer)) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, status, answer, c.status, c.answer)
		}
		if status != 200 && !strings.Contains(answer, `"message":`) {
			t.Errorf("%s %s: %s has no message", c.method, c.path, answer)
		}
	}
	operator.Wait("a reservation that lasts", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameReserved && r.Game.ReservedUntil == nil
	})
}

// compact is JSON without the spaces that protojson puts in by chance.
func compact(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestAWatchOverREST(t *testing.T) {
	s := start(t, reports.New(t), "--readiness=SDK")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/watch/gameserver", s.httpPort), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for _, want := range []string{"Scheduled", "Ready", "Allocated"} {
		if !lines.Scan() {
			t.Fatalf("the watch ended: %v", lines.Err())
		}
		var line struct {
			Result struct{ Status struct{ State string } }
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Result.Status.State != want {
			t.Errorf("line %s, %v; want state %s", lines.Text(), err, want)
		}
		switch want {
		case "Scheduled":
			s.want("POST", "/ready", "{}", 200, "{}")
		case "Ready":
			s.want("POST", "/allocate", "{}", 200, "{}")
		}
	}
}
