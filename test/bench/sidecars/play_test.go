package sidecars

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

const within = 10 * time.Second

// call is a report that waits for its answer.
type call struct {
	report reportapi.Report
	answer chan<- reportapi.Answer
}

func TestAPlayedSidecarRestoresReportsAndObeys(t *testing.T) {
	calls := make(chan call)
	ctx, cancel := context.WithCancel(t.Context())
	operator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer word" {
			t.Errorf("it shows %q", r.Header.Get("Authorization"))
		}
		var report reportapi.Report
		if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
			t.Error(err)
		}
		answer := make(chan reportapi.Answer, 1)
		select {
		case calls <- call{report, answer}:
		case <-ctx.Done():
			return
		}
		select {
		case a := <-answer:
			_ = json.NewEncoder(w).Encode(a)
		case <-ctx.Done():
		}
	}))
	defer operator.Close()
	commands, tell := io.Pipe()
	heard, notices := io.Pipe()
	played := make(chan error, 1)
	go func() { played <- Play(ctx, strings.TrimPrefix(operator.URL, "http://"), commands, notices) }()
	defer func() {
		cancel()
		if err := <-played; err != nil {
			t.Error(err)
		}
	}()
	if err := json.NewEncoder(tell).Encode(command{Play: &Sidecar{Server: "lobby", Token: "word"}}); err != nil {
		t.Fatal(err)
	}
	noticed := make(chan notice, 1)
	go func() {
		var n notice
		_ = json.NewDecoder(heard).Decode(&n)
		noticed <- n
	}()
	next := func() call {
		t.Helper()
		select {
		case c := <-calls:
			return c
		case <-time.After(within):
			t.Fatal("no report came")
			return call{}
		}
	}
	first := next()
	if !first.report.Restore || first.report.Server != "lobby" {
		t.Errorf("the first report is %+v, want it to restore", first.report)
	}
	first.answer <- reportapi.Answer{Version: "1"}
	second := next()
	if r := second.report; r.Restore || r.Seen != "1" || r.Game.State != v1alpha1.GameReady || !r.DeletionAllowed || r.ShutdownSeen || r.Sequence <= first.report.Sequence {
		t.Errorf("the second report is %+v", r)
	}
	second.answer <- reportapi.Answer{Version: "2", Shutdown: true, Look: "look"}
	if r := next().report; r.Seen != "2" || !r.ShutdownSeen || r.Looked != "look" || !r.DeletionAllowed {
		t.Errorf("the report after the order to shut down is %+v", r)
	}
	select {
	case n := <-noticed:
		if n.Unready != "lobby" {
			t.Errorf("it told %+v, want that lobby isn't ready", n)
		}
	case <-time.After(within):
		t.Error("nothing was told")
	}
}
