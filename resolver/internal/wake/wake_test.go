package wake

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/tokenfile"
)

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func newClient(t *testing.T, url string) *Client {
	t.Helper()
	c, err := New(url, tokenfile.New(tokenFile(t, "secret-token")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

func TestTheCallIsWhatTheOperatorExpects(t *testing.T) {
	var method, path, authorization, prefer, body string
	operator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		method, path, authorization, prefer, body = r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Prefer"), string(b)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"phase":"Waking","replicas":1,"lastWakeTime":"2026-11-28T09:30:00.123456Z"}`)
	}))
	defer operator.Close()
	got := newClient(t, operator.URL).Wake(t.Context(), "games", "lobby", 3)
	woken := time.Date(2026, 11, 28, 9, 30, 0, 123456000, time.UTC)
	if diff := cmp.Diff(Result{Outcome: Accepted, Phase: v1alpha1.PhaseWaking, LastWakeTime: woken}, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	want := []string{"POST", informerapi.WakePath, "Bearer secret-token", "respond-async", `{"count":3,"svc":"lobby","namespace":"games"}`}
	if diff := cmp.Diff(want, []string{method, path, authorization, prefer, body}); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
}

func TestOutcomes(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	cases := map[string]struct {
		handler   http.HandlerFunc
		want      Outcome
		cancelled bool
	}{
		"a service that comes up":               {answer(202, `{"phase":"Waking"}`), Accepted, true},
		"a sleep that is cancelled":             {answer(202, `{"phase":"Awake"}`), Accepted, true},
		"a sleep that is past cancelling":       {answer(202, `{"phase":"Asleep"}`), Accepted, false},
		"an unknown phase lets nobody in":       {answer(202, `{"phase":"Dreaming"}`), Malformed, false},
		"no phase lets nobody in":               {answer(202, `{}`), Malformed, false},
		"an answer that is no JSON":             {answer(202, `<html>`), Malformed, false},
		"200 is not what was agreed":            {answer(200, `{"phase":"Awake"}`), Rejected, false},
		"an unknown service":                    {answer(404, `{"error":"no such service"}`), NotFound, false},
		"a token that is not trusted":           {answer(401, ``), Unauthorized, false},
		"an account that may not":               {answer(403, ``), Unauthorized, false},
		"an API server that can't be reached":   {answer(503, ``), Unavailable, false},
		"a redirect is not followed":            {answer(302, ``), Rejected, false},
		"an answer that has no end":             {answer(202, strings.Repeat("x", maxAnswer+1)), Unreachable, false},
		"an operator that does not answer":      {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, TimedOut, false},
		"an operator that drops the connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unreachable, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operator := httptest.NewServer(tc.handler)
			defer operator.Close()
			began := time.Now()
			got := newClient(t, operator.URL).Wake(t.Context(), "games", "lobby", 1)
			if got.Outcome != tc.want || got.Cancelled() != tc.cancelled {
				t.Errorf("outcome %s (%v), cancelled %t; want %s, %t", got.Outcome, got.Err, got.Cancelled(), tc.want, tc.cancelled)
			}
			if got.Err != nil && strings.Contains(got.Err.Error(), "secret-token") {
				t.Error("the error shows the token")
			}
			if took := time.Since(began); took > 3*Timeout {
				t.Errorf("the call took %s", took)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	operator := httptest.NewServer(http.NotFoundHandler())
	operator.Close()
	if got := newClient(t, operator.URL).Wake(t.Context(), "games", "lobby", 1); got.Outcome != Unreachable {
		t.Errorf("outcome %s (%v), want %s", got.Outcome, got.Err, Unreachable)
	}
}

func TestAKeptConnectionThatWasClosedCostsNoCall(t *testing.T) {
	operator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"phase":"Awake"}`)
	}))
	defer operator.Close()
	c := newClient(t, operator.URL)
	for range 3 {
		if got := c.Wake(t.Context(), "games", "lobby", 1); got.Outcome != Accepted {
			t.Fatalf("outcome %s (%v)", got.Outcome, got.Err)
		}
		operator.CloseClientConnections()
	}
}

func TestStartKeepsAConnectionWarm(t *testing.T) {
	touched := make(chan struct{}, 1)
	operator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			touched <- struct{}{}
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"phase":"Awake"}`)
	}))
	defer operator.Close()
	c := newClient(t, operator.URL)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	<-touched
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestURLs(t *testing.T) {
	cases := map[string]bool{
		"http://operator:8080": true, "http://operator": true, "https://[::1]:8443": true, "http://operator:8080/": true,
		"operator:8080": false, "ftp://operator": false, "": false, "http://": false,
	}
	for url, good := range cases {
		if _, err := New(url, tokenfile.New("x")); (err == nil) != good {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestWithoutATokenNobodyIsCalled(t *testing.T) {
	c, err := New("http://127.0.0.1:1", tokenfile.New(filepath.Join(t.TempDir(), "none")))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Wake(t.Context(), "games", "lobby", 1); got.Outcome != NoToken {
		t.Errorf("outcome %s, want %s", got.Outcome, NoToken)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(202, []byte(`{"phase":"Awake","replicas":1}`))
	f.Add(404, []byte(`{"error":"no"}`))
	f.Add(202, []byte(`{"phase":1}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		got := parseAnswer(status, body)
		if got.Outcome == "" || (got.Outcome == Accepted) != (got.Err == nil) {
			t.Errorf("%+v", got)
		}
		if got.Cancelled() && status != 202 {
			t.Errorf("status %d lets clients in", status)
		}
	})
}
