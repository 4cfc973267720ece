package errortracking

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/test/sentrysink"
)

// patience bounds what should happen at once on a busy machine.
const patience = 10 * time.Second

func TestMain(m *testing.M) {
	if dsn := os.Getenv(crashDSN); dsn != "" {
		crash(dsn)
	}
	// fasthttp's own, as in httpserver's tests.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

func start(t *testing.T) (*Reporter, *sentrysink.Sink) {
	t.Helper()
	sink := sentrysink.Start()
	t.Cleanup(sink.Close)
	r, err := New(Options{
		Program: "operator", DSN: sink.DSN(), Environment: "staging", Release: "v1.2.3", ServerName: "operator-7d4b9",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, sink
}

// events waits until there are n.
func events(t *testing.T, sink *sentrysink.Sink, n int) []sentrysink.Event {
	t.Helper()
	late := time.After(patience)
	for {
		events, problems, more := sink.Events()
		if len(problems) > 0 {
			t.Fatalf("the sink could not take: %s", strings.Join(problems, "; "))
		}
		if len(events) >= n {
			if len(events) > n {
				t.Fatalf("%d events arrived, want %d", len(events), n)
			}
			return events
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%d events arrived, want %d", len(events), n)
		}
	}
}

func counts(t *testing.T, r *Reporter) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	for _, outcome := range []string{sent, failed, repeated, dropped} {
		got[outcome] = testutil.ToFloat64(r.counted.WithLabelValues(outcome))
	}
	return got
}

func about(name string) Subject {
	return Subject{Controller: "elasticservice", Kind: "ElasticService", Key: types.NamespacedName{Namespace: "games", Name: name}}
}

// fieldsOf are all that an event may have.
var fieldsOf = []string{
	"environment", "event_id", "exception", "fingerprint", "level", "platform", "release", "sdk", "server_name", "tags", "timestamp",
}

func TestAnErrorArrivesWithTagsAndWithoutPayload(t *testing.T) {
	t.Setenv("SENTRY_TAGS_LEAK", "leaked-variable")
	r, sink := start(t)
	hostname, _ := os.Hostname()
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzZWNyZXQifQ.c2lnbmF0dXJl"
	failure := fmt.Errorf("apply Service games/lobby with Authorization: Bearer %s at https://user:password@host/x: %w", token,
		errors.New(`Service "lobby" is invalid: spec.ports[0]: Invalid value: {"secret-field":"secret-value"}: must be smaller`))
	r.Error(failure, about("lobby"))
	e := events(t, sink, 1)[0]
	want := map[string]string{
		"program": "operator", "controller": "elasticservice", "kind": "ElasticService", "namespace": "games", "name": "lobby",
	}
	if diff := cmp.Diff(want, e.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if e.Level != "error" || e.Release != "v1.2.3" || e.Environment != "staging" || e.ServerName != "operator-7d4b9" {
		t.Errorf("level %q, release %q, environment %q, server %q", e.Level, e.Release, e.Environment, e.ServerName)
	}
	for _, field := range slices.Sorted(maps.Keys(e.Fields)) {
		empty := field == "user" && cmp.Equal(e.Fields[field], map[string]any{})
		if !empty && !slices.Contains(fieldsOf, field) {
			t.Errorf("the event has a field %q, which is not known to be harmless: %v", field, e.Fields[field])
		}
	}
	if value := e.Exception[0].Value; !strings.HasPrefix(value, "apply Service games/lobby") {
		t.Errorf("the error is %q", value)
	}
	for _, secret := range []string{"eyJ", "password", "secret-field", "secret-value", "leaked-variable", "PATH=", hostname} {
		if secret != "" && strings.Contains(e.Text, secret) {
			t.Errorf("%q was sent:\n%s", secret, e.Text)
		}
	}
}

func TestAPanicOfAnHTTPHandlerArrivesWithoutTheRequest(t *testing.T) {
	r, sink := start(t)
	web := httpserver.New(httpserver.Options{Address: "127.0.0.1:0", OnPanic: r.Panic, Log: logr.Discard()})
	web.Handle(http.MethodPost, "/wake", func(*fasthttp.RequestCtx) { panic("an odd request") })
	if err := web.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- web.Start(ctx) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+web.Addr().String()+"/wake", strings.NewReader("the-body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer the-token")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	cancel()
	if err := <-ended; err != nil || res.StatusCode != http.StatusInternalServerError {
		t.Errorf("the answer was %s, and the server's end %v", res.Status, err)
	}
	e := events(t, sink, 1)[0]
	if diff := cmp.Diff(map[string]string{"program": "operator"}, e.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	frames := e.Exception[0].Stacktrace.Frames
	if e.Exception[0].Value != "an odd request" || len(frames) == 0 || !strings.HasPrefix(fmt.Sprint(frames[len(frames)-1]["function"]), "TestAPanicOfAnHTTPHandler") {
		t.Errorf("the exception is %+v, want the handler's panic", e.Exception)
	}
	for _, payload := range []string{"the-body", "the-token", "/wake"} {
		if strings.Contains(e.Text, payload) {
			t.Errorf("%q was sent:\n%s", payload, e.Text)
		}
	}
}

func TestWhatRepeatsIsSentOnceForEachObjectAndAllIsBounded(t *testing.T) {
	r, sink := start(t)
	now := time.Now()
	r.repeats.now = func() time.Time { return now }
	fail := func(name, text string) {
		r.Error(errors.New(text), about(name))
	}
	for range 100 {
		fail("a", "cannot read a at 10.0.0.1:443")
		fail("a", "cannot read a at 10.0.0.2:443")
		fail("b", "cannot read b at 10.0.0.1:443")
	}
	events(t, sink, 2)
	now = now.Add(remember)
	fail("a", "cannot read a at 10.0.0.1:443")
	events(t, sink, 3)
	r.Close()
	got, _, _ := sink.Events()
	if a, b := got[0].Fields["fingerprint"], got[1].Fields["fingerprint"]; !cmp.Equal(a, b) {
		t.Errorf("the same error of two objects has the fingerprints %v and %v", a, b)
	}
	if diff := cmp.Diff(map[string]float64{sent: 3, failed: 0, repeated: 298, dropped: 0}, counts(t, r)); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	for i := range 10 * most {
		r.repeats.first(fmt.Sprint(i))
	}
	if len(r.repeats.recent) > most || len(r.repeats.order) > most {
		t.Errorf("%d are remembered, want %d at most", len(r.repeats.recent), most)
	}
}

func TestAServerThatHangsBlocksNobody(t *testing.T) {
	asked, release := make(chan struct{}, queued), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-release }))
	t.Cleanup(server.Close)
	r, err := New(Options{Program: "operator", DSN: "http://key@" + server.Listener.Addr().String() + "/1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	t.Cleanup(func() { close(release) })
	r.limit = rate.NewLimiter(rate.Inf, 0)
	report := func(name string) {
		r.Error(errors.New("no"), about(name))
	}
	report("first")
	<-asked // The queue is empty now, and stays as full as it becomes.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range queued + 10 {
			report(fmt.Sprint(i))
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("whoever reports waits for the server")
	}
	if got := counts(t, r)[dropped]; got != 10 {
		t.Errorf("%v were dropped, want 10", got)
	}
}

func TestAllReportsTogetherAreBounded(t *testing.T) {
	r, sink := start(t)
	for i := range burst + 20 {
		r.Error(errors.New("no"), about(fmt.Sprint(i)))
	}
	events(t, sink, burst)
	if got := counts(t, r)[dropped]; got != 20 {
		t.Errorf("%v were dropped, want 20", got)
	}
	// What was dropped is sent when there is room again, and not taken for sent.
	r.limit = rate.NewLimiter(rate.Inf, 0)
	r.Error(errors.New("no"), about(fmt.Sprint(burst)))
	events(t, sink, burst+1)
}

func TestRefusedReportsAreCounted(t *testing.T) {
	r, sink := start(t)
	sink.Refuse(http.StatusInternalServerError)
	r.Error(errors.New("no"), about("a"))
	r.Close()
	if diff := cmp.Diff(map[string]float64{sent: 0, failed: 1, repeated: 0, dropped: 0}, counts(t, r)); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestWithoutADSNNothingIsSentAndAllIsCountedFromZero(t *testing.T) {
	r, err := New(FromEnvironment("operator", func(string) string { return "" }))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.WatchCrashes()
	r.Panic("boom", nil)
	r.Error(errors.New("no"), about("a"))
	registry := prometheus.NewRegistry()
	r.Register(registry)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	if diff := cmp.Diff(map[string]float64{sent: 0, failed: 0, repeated: 0, dropped: 0}, counts(t, r)); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestABadDSNSaysWhatToChangeAndNotTheKey(t *testing.T) {
	for _, dsn := range []string{"nonsense", "https://sentry.example/1", "ftp://topsecret@sentry.example/1", "https://topsecret@sentry.example", "https://topsecret@[::1/1"} {
		_, err := New(Options{Program: "operator", DSN: dsn})
		if err == nil || !strings.Contains(err.Error(), "SENTRY_DSN") || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

// crashDSN makes the test program crash instead, and report it there.
const crashDSN = "DORMOUSE_TEST_CRASH_DSN"

func crash(dsn string) {
	r, err := New(Options{Program: "resolver", DSN: dsn})
	if err != nil {
		panic(err)
	}
	r.WatchCrashes()
	go func() {
		defer utilruntime.HandleCrash()
		panic("the end of it")
	}()
	select {}
}

func TestAPanicThatEndsTheProcessIsSentFirst(t *testing.T) {
	sink := sentrysink.Start()
	defer sink.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), crashDSN+"="+sink.DSN())
	output, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(output), "panic: the end of it") {
		t.Errorf("the process ended with %v; want a panic's code and words:\n%s", err, output)
	}
	got, problems, _ := sink.Events()
	if len(got) != 1 || len(problems) > 0 || got[0].Exception[0].Value != "the end of it" || got[0].Tags["program"] != "resolver" {
		t.Errorf("when the process had ended, there were %v, %v; want its panic", got, problems)
	}
}

// What a Pod is given decides what is sent as.
func TestTheEnvironmentIsRead(t *testing.T) {
	env := map[string]string{"SENTRY_DSN": " https://k@h/1\n", "SENTRY_ENVIRONMENT": "eu", "POD_NAME": "operator-1"}
	got := FromEnvironment("operator", func(name string) string { return env[name] })
	got.Release = ""
	want := Options{Program: "operator", DSN: "https://k@h/1", Environment: "eu", ServerName: "operator-1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}
