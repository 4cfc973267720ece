package run

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/coder/websocket"

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

// watch watches over WebSocket, with an Origin unless that is empty.
func (s *sidecar) watch(host, origin string) (conn *websocket.Conn, status int, err error) {
	s.t.Helper()
	options := &websocket.DialOptions{HTTPClient: &http.Client{Transport: s.transport}, Host: host, HTTPHeader: http.Header{}}
	if origin != "" {
		options.HTTPHeader.Set("Origin", origin)
	}
	conn, response, err := websocket.Dial(s.t.Context(), fmt.Sprintf("ws://127.0.0.1:%d/watch/gameserver", s.httpPort), options) //nolint:bodyclose // the library closes it
	if response == nil {
		s.t.Fatal(err)
	}
	return conn, response.StatusCode, err
}

// Unreal's component watches in this way.
func TestAWatchOverWebSocket(t *testing.T) {
	s := start(t, reports.New(t), "--readiness=SDK")
	conn, _, err := s.watch("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	for _, want := range []string{"Scheduled", "Ready", "Allocated"} {
		kind, text, err := conn.Read(t.Context())
		if err != nil {
			t.Fatalf("the watch ended: %v", err)
		}
		var message struct {
			Result struct{ Status struct{ State string } }
		}
		if err := json.Unmarshal(text, &message); err != nil || kind != websocket.MessageText || message.Result.Status.State != want {
			t.Errorf("%s %s, %v; want text with state %s", kind, text, err, want)
		}
		switch want {
		case "Scheduled":
			s.want("POST", "/ready", "{}", 200, "{}")
		case "Ready":
			s.want("POST", "/allocate", "{}", 200, "{}")
		}
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for err == nil {
		_, _, err = conn.Read(ctx)
	}
	if ctx.Err() != nil {
		t.Error("the watch goes on without the sidecar")
	}
}

// A watch that isn't read has had more sent than there is room for.
func TestAWatchThatIsNotReadEndsWithTheSidecar(t *testing.T) {
	s := start(t, reports.New(t))
	conn, _, err := s.watch("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	long := strings.Repeat("x", 4000)
	for i := range 100 {
		s.want("PUT", "/metadata/annotation", fmt.Sprintf(`{"key":"a%d","value":"%d %s"}`, i%30, i, long), 200, "{}")
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	stacks := make([]byte, 1<<20)
	s.eventually("the watch ends", func() bool {
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("overWebSocket"))
	})
}

// A page in a browser can open a WebSocket to any address.
func TestNobodyElseCanWatchOverWebSocket(t *testing.T) {
	s := start(t, reports.New(t))
	for _, c := range []struct {
		host, origin string
		status       int
	}{
		{"", "http://127.0.0.1", 101}, // as Unreal's library says
		{"127.0.0.1", "http://127.0.0.1", 101},
		{"localhost:9358", "http://localhost:80", 101},
		{"[::1]:9358", "http://[::1]", 101},
		{"", "http://example.com", 403},
		{"", "http://127.0.0.1.example.com", 403},
		{"", "null", 403},
		{"example.com", "", 403},
		{"example.com", "http://example.com", 403},
	} {
		conn, status, err := s.watch(c.host, c.origin)
		if status != c.status || (err == nil) != (c.status == 101) {
			t.Errorf("as %q from %q: %d, %v; want %d", c.host, c.origin, status, err, c.status)
		}
		if err == nil {
			_ = conn.CloseNow()
		}
	}
}
