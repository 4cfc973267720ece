// Package reports stands in for the operator as sidecars see it: it takes reports,
// holds them while it has nothing to tell, and lets tests say what it tells and see
// what it was told.
package reports

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// within bounds how long a report that a test waits for may take.
const within = 20 * time.Second

// token is what sidecars show.
const token = "a-token-of-its-pod"

// Operator takes the reports of one sidecar at a time.
type Operator struct {
	t      testing.TB
	server *httptest.Server
	over   chan struct{}

	mu      sync.Mutex
	changed chan struct{}
	answer  reportapi.Answer
	// last is the latest report, without those that ask for what was.
	last     reportapi.Report
	restores int
	silent   bool
}

// New starts one that ends with the test. It tells of a Server named lobby whose
// game started now.
func New(t testing.TB) *Operator {
	started := time.Now().Truncate(time.Second)
	o := &Operator{t: t, over: make(chan struct{}), changed: make(chan struct{}), answer: reportapi.Answer{
		Version: "1", GameStarted: &started,
		Server: reportapi.Server{
			Name: "lobby", Namespace: "games", UID: "6f0c", Generation: 4,
			CreationTimestamp: time.Unix(1900000000, 0),
			Labels:            map[string]string{"team": "red"}, Annotations: map[string]string{"note": "hi"},
			Address: "203.0.113.7", PodIP: "10.0.0.9", NodeName: "node-1",
			Ports:    []v1alpha1.ServerPortStatus{{Name: "game", Port: 7777, Protocol: v1alpha1.ServerProtocolUDP}},
			Capacity: 20,
			Counters: map[string]v1alpha1.Counter{"rooms": {Count: 1, Capacity: 4}},
			Lists:    map[string]v1alpha1.List{"maps": {Capacity: 3, Values: []string{"dust"}}},
		},
	}}
	o.server = httptest.NewServer(http.HandlerFunc(o.take))
	t.Cleanup(func() {
		close(o.over)
		o.server.Close()
	})
	return o
}

// URL is where it listens.
func (o *Operator) URL() string { return o.server.URL }

// TokenFile writes the token that it wants to see.
func (o *Operator) TokenFile() string {
	o.t.Helper()
	file := filepath.Join(o.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		o.t.Fatal(err)
	}
	return file
}

// Tell changes what it tells, at once.
func (o *Operator) Tell(change func(*reportapi.Answer)) {
	o.update(func() {
		o.answer.Version += "'"
		change(&o.answer)
	})
}

// Silent makes it answer nothing until it is told to again.
func (o *Operator) Silent(silent bool) { o.update(func() { o.silent = silent }) }

// Restores is how many reports have asked for what was.
func (o *Operator) Restores() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.restores
}

// Wait waits for a report as the test wants it and gives it.
func (o *Operator) Wait(what string, want func(reportapi.Report) bool) reportapi.Report {
	o.t.Helper()
	for deadline := time.After(within); ; {
		o.mu.Lock()
		last, changed := o.last, o.changed
		o.mu.Unlock()
		if last.Sequence > 0 && want(last) {
			return last
		}
		select {
		case <-changed:
		case <-deadline:
			text, _ := json.MarshalIndent(last, "", "  ")
			o.t.Fatalf("no report has %s; the last is %s", what, text)
		}
	}
}

func (o *Operator) update(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *Operator) take(w http.ResponseWriter, r *http.Request) {
	var report reportapi.Report
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil || r.URL.Path != reportapi.ReportPath || r.Method != http.MethodPost {
		o.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	if r.Header.Get("Authorization") != "Bearer "+token {
		o.t.Errorf("a report with the token %q", r.Header.Get("Authorization"))
	}
	o.update(func() {
		if report.Restore {
			o.restores++
		} else if report.Sequence > o.last.Sequence || report.Instance != o.last.Instance {
			o.last = report
		}
	})
	hold := time.After(reportapi.HoldTime)
	for held := true; ; {
		o.mu.Lock()
		answer, silent, changed := o.answer, o.silent, o.changed
		overtaken := o.last.Instance == report.Instance && o.last.Sequence > report.Sequence
		o.mu.Unlock()
		if !silent && (!held || overtaken || report.Restore || answer.Version != report.Seen) {
			if !report.Restore {
				answer.Restored = nil
			}
			_ = json.NewEncoder(w).Encode(answer)
			return
		}
		select {
		case <-changed:
		case <-hold:
			held = false
		case <-r.Context().Done():
			return
		case <-o.over:
			return
		}
	}
}
