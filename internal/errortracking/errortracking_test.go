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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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

func returning(err error) reconcile.Reconciler {
	return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, err })
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "games", Name: name}}
}

// fieldsOf are all that an event may have.
var fieldsOf = []string{
	"environment", "event_id", "exception", "fingerprint", "level", "platform", "release", "sdk", "server_name", "tags", "timestamp",
}

func TestAReconcileErrorArrivesWithTagsAndWithoutPayload(t *testing.T) {
	t.Setenv("SENTRY_TAGS_LEAK", "leaked-variable")
	r, sink := start(t)
	hostname, _ := os.Hostname()
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzZWNyZXQifQ.c2lnbmF0dXJl"
	failure := fmt.Errorf("apply Service games/lobby with Authorization: Bearer %s at https://user:password@host/x: %w", token,
		errors.New(`Service "lobby" is invalid: spec.ports[0]: Invalid value: {"secret-field":"secret-value"}: must be smaller`))
	got, err := r.Reconciler("elasticservice", "ElasticService", returning(failure)).Reconcile(t.Context(), request("lobby"))
	if !errors.Is(err, failure) || got != (reconcile.Result{}) {
		t.Errorf("the controller got %v, %v; want the reconciler's own answer", got, err)
	}
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

func TestAReconcilersPanicArrivesOnceWithItsStack(t *testing.T) {
	r, sink := start(t)
	before := utilruntime.PanicHandlers
	t.Cleanup(func() { utilruntime.PanicHandlers = before })
	r.WatchCrashes()
	explode := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { panic("boom") })
	func() {
		// As controller-runtime does.
		defer func() {
			value := recover()
			if fmt.Sprint(value) != "boom" {
				t.Errorf("the controller recovered %v, want boom", value)
			}
			for _, handler := range utilruntime.PanicHandlers[len(before):] {
				handler(t.Context(), value)
			}
		}()
		_, _ = r.Reconciler("elasticservice", "ElasticService", explode).Reconcile(t.Context(), request("lobby"))
	}()
	r.Close()
	e := events(t, sink, 1)[0]
	if e.Level != "fatal" || e.Tags["name"] != "lobby" || e.Exception[0].Value != "boom" {
		t.Errorf("level %q, tags %v, exception %v", e.Level, e.Tags, e.Exception)
	}
	frames := e.Exception[0].Stacktrace.Frames
	if len(frames) == 0 {
		t.Fatal("there is no stack")
	}
	last := frames[len(frames)-1]
	if function, _ := last["function"].(string); !strings.HasPrefix(function, "TestAReconcilersPanic") {
		t.Errorf("the stack ends in %v, want the function that panicked", last)
	}
	for _, frame := range frames {
		for _, field := range slices.Sorted(maps.Keys(frame)) {
			if !slices.Contains([]string{"filename", "function", "in_app", "lineno", "module"}, field) {
				t.Errorf("a frame has a field %q: %v", field, frame)
			}
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

func TestOnlyWhatIsNewsIsReported(t *testing.T) {
	resource := schema.GroupResource{Resource: "services"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"none":             {nil, false},
		"conflict":         {fmt.Errorf("write: %w", apierrors.NewConflict(resource, "lobby", errors.New("changed"))), false},
		"a user's mistake": {fmt.Errorf("read: %w", reconcile.TerminalError(errors.New("no such target"))), false},
		"told to stop":     {fmt.Errorf("read: %w", context.Canceled), false},
		"too slow":         {fmt.Errorf("read: %w", context.DeadlineExceeded), true},
		"forbidden":        {fmt.Errorf("write: %w", apierrors.NewForbidden(resource, "lobby", errors.New("no"))), true},
	} {
		if got := isNews(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestWhatRepeatsIsSentOnceForEachObjectAndAllIsBounded(t *testing.T) {
	r, sink := start(t)
	now := time.Now()
	r.repeats.now = func() time.Time { return now }
	fail := func(name, text string) {
		_, _ = r.Reconciler("c", "Kind", returning(errors.New(text))).Reconcile(t.Context(), request(name))
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
	if len(r.repeats.known) > most || len(r.repeats.order) > most {
		t.Errorf("%d are remembered, want %d at most", len(r.repeats.known), most)
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
		_, _ = r.Reconciler("c", "Kind", returning(errors.New("no"))).Reconcile(t.Context(), request(name))
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
		_, _ = r.Reconciler("c", "Kind", returning(errors.New("no"))).Reconcile(t.Context(), request(fmt.Sprint(i)))
	}
	events(t, sink, burst)
	if got := counts(t, r)[dropped]; got != 20 {
		t.Errorf("%v were dropped, want 20", got)
	}
	// What was dropped is sent when there is room again, and not taken for sent.
	r.limit = rate.NewLimiter(rate.Inf, 0)
	_, _ = r.Reconciler("c", "Kind", returning(errors.New("no"))).Reconcile(t.Context(), request(fmt.Sprint(burst)))
	events(t, sink, burst+1)
}

func TestRefusedReportsAreCounted(t *testing.T) {
	r, sink := start(t)
	sink.Refuse(http.StatusInternalServerError)
	_, _ = r.Reconciler("c", "Kind", returning(errors.New("no"))).Reconcile(t.Context(), request("a"))
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
	_, _ = r.Reconciler("c", "Kind", returning(errors.New("no"))).Reconcile(t.Context(), request("a"))
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
