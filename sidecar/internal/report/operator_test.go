package report

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/sidecar/internal/game"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const within = 10 * time.Second

// call is a report that the operator holds until the test answers it.
type call struct {
	t           *testing.T
	report      reportapi.Report
	token       string
	deniedSince string // reportapi.DeniedSinceHeader
	memory      string // reportapi.MemoryHeader
	hold        string // reportapi.HoldHeader
	answer      chan func(http.ResponseWriter)
	gone        <-chan struct{}
}

// operator is scripted by its test.
type operator struct {
	t      *testing.T
	server *httptest.Server
	calls  chan *call
	over   chan struct{}
	// open counts connections.
	open, most atomic.Int32
}

func newOperator(t *testing.T) *operator {
	o := &operator{t: t, calls: make(chan *call, 100), over: make(chan struct{})}
	o.server = httptest.NewUnstartedServer(o)
	o.start()
	t.Cleanup(func() {
		close(o.over)
		o.server.Close()
	})
	return o
}

func (o *operator) start() {
	o.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if now := o.open.Add(1); now > o.most.Load() {
				o.most.Store(now)
			}
		case http.StateClosed, http.StateHijacked:
			o.open.Add(-1)
		case http.StateActive, http.StateIdle:
		}
	}
	o.server.Start()
}

func (o *operator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{t: o.t, token: r.Header.Get("Authorization"), deniedSince: r.Header.Get(reportapi.DeniedSinceHeader), memory: r.Header.Get(reportapi.MemoryHeader), hold: r.Header.Get(reportapi.HoldHeader), answer: make(chan func(http.ResponseWriter), 1), gone: r.Context().Done()}
	if r.Method != http.MethodPost || r.URL.Path != reportapi.ReportPath {
		o.t.Errorf("%s %s", r.Method, r.URL.Path)
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c.report); err != nil {
		o.t.Errorf("report: %v", err)
	}
	o.calls <- c
	select {
	case respond := <-c.answer:
		respond(w)
	case <-c.gone:
	case <-o.over:
	}
}

// next is the next report.
func (o *operator) next() *call {
	o.t.Helper()
	select {
	case c := <-o.calls:
		return c
	case <-time.After(within):
		o.t.Fatal("no report came")
		return nil
	}
}

// none sees that no report comes for a while.
func (o *operator) none(d time.Duration) {
	o.t.Helper()
	select {
	case c := <-o.calls:
		o.t.Errorf("an unexpected report: %+v", c.report)
	case <-time.After(d):
	}
}

func (c *call) tell(a reportapi.Answer) {
	c.answer <- func(w http.ResponseWriter) { _ = json.NewEncoder(w).Encode(a) }
}

// part tells, and closes the connection, as a replica does that ends.
func (c *call) part(a reportapi.Answer) {
	c.answer <- func(w http.ResponseWriter) {
		w.Header().Set("Connection", "close")
		_ = json.NewEncoder(w).Encode(a)
	}
}

// breakOff closes the connection without an answer.
func (c *call) breakOff() {
	c.answer <- func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
}

func (c *call) refuse(status int, body string) {
	c.answer <- func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func (c *call) wantGone() {
	c.t.Helper()
	select {
	case <-c.gone:
	case <-time.After(within):
		c.t.Error("a report is still under way")
	}
}

func (c *call) wantHeld() {
	c.t.Helper()
	select {
	case <-c.gone:
		c.t.Error("a report was given up")
	default:
	}
}

// gameStarted is one for all answers: another one would be another process.
var gameStarted = time.Now().Truncate(time.Second).Add(-time.Minute)

// answer is what the operator tells while nothing happens.
func answerOf(version string) reportapi.Answer {
	return reportapi.Answer{Version: version, GameStarted: &gameStarted, Server: reportapi.Server{Name: "lobby", Capacity: 20}}
}

// sidecar is a Game with its reporter.
type sidecar struct {
	*game.Game
	reporter *Reporter
	token    string
	log      chan string
	stop     func() error
}

func newSidecar(t *testing.T, url string) *sidecar {
	t.Helper()
	s := &sidecar{token: filepath.Join(t.TempDir(), "token"), log: make(chan string, 1000)}
	if err := os.WriteFile(s.token, []byte("word"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Game = game.New(game.Config{
		Readiness: v1alpha1.ServerReadinessSDK, Unreported: v1alpha1.DeletionAllowed,
		Health: game.Health{Period: time.Minute, FailureThreshold: 3},
	}, clock.RealClock{})
	var err error
	s.reporter, err = New(url, "lobby", tokenfile.New(s.token), s.Game, nil, s.logger())
	if err != nil {
		t.Fatal(err)
	}
	// Most operators here are gone by then.
	s.reporter.lastTimeout = 20 * time.Millisecond
	return s
}

func (s *sidecar) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		select {
		case s.log <- line:
		default:
		}
	}, funcr.Options{})
}

// run runs the reporter until the test ends, or stop is called.
func (s *sidecar) run(t *testing.T) *sidecar {
	t.Helper()
	ctx, cancel := contextWithCancel(t)
	done := make(chan error, 1)
	go func() { done <- s.reporter.Run(ctx) }()
	stopped := false
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(within):
			t.Error("the reporter doesn't end")
			return nil
		}
	}
	t.Cleanup(func() { _ = s.stop() })
	return s
}

// started is a reporter that has restored, and whose first report is held.
func started(t *testing.T) (*operator, *sidecar, *call) {
	t.Helper()
	o := newOperator(t)
	s := newSidecar(t, o.server.URL)
	return o, s, s.start(t, o)
}

func (s *sidecar) start(t *testing.T, o *operator) *call {
	t.Helper()
	s.run(t)
	o.next().tell(answerOf("1"))
	held := o.next()
	if held.report.Restore || held.report.Seen != "1" {
		t.Fatalf("report %+v", held.report)
	}
	return held
}

// listen opens an address again that was open a moment ago.
func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	for deadline := time.After(within); ; {
		ln, err := net.Listen("tcp", address)
		if err == nil {
			return ln
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
