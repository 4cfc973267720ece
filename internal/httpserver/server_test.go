package httpserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// fasthttp keeps one goroutine that writes the date, and each worker pool
	// one that sleeps up to a worker's idle time.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

func start(t *testing.T, s *Server) (url string, stop func() error) {
	t.Helper()
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { _ = stop() })
	return "http://" + s.Addr().String(), stop
}

func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}

func TestAnswers(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "dormouse_test_total", Help: "A test."})
	counter.Add(3)
	registry.MustRegister(counter)
	var panicked any
	counts := prometheus.NewRegistry()
	s := New(Options{
		Address:      "127.0.0.1:0",
		MaxBodyBytes: 16,
		Gatherer:     registry,
		Registerer:   counts,
		Ready:        func() error { return errors.New("the caches are not filled") },
		Log:          logr.Discard(),
		OnPanic:      func(value any, _ []byte) { panicked = value },
	})
	s.Handle(http.MethodPost, "/echo", func(ctx *fasthttp.RequestCtx) { ctx.SetBody(ctx.PostBody()) })
	s.Handle(http.MethodGet, "/panic", func(*fasthttp.RequestCtx) { panic("oh dear") })
	url, _ := start(t, s)

	cases := map[string]struct {
		method, path, body string
		wantStatus         int
		wantBody           string
	}{
		"a handler answers":                           {"POST", "/echo", "hello", 200, "hello"},
		"a body at the bound is taken":                {"POST", "/echo", strings.Repeat("x", 16), 200, strings.Repeat("x", 16)},
		"a body over the bound is refused":            {"POST", "/echo", strings.Repeat("x", 17), 413, `{"error":"the request's body is too large"}`},
		"another method is refused":                   {"GET", "/echo", "", 405, `{"error":"this path takes POST only"}`},
		"an unknown path is not found":                {"GET", "/nothing", "", 404, `{"error":"there is nothing at this path"}`},
		"a panic is an answer":                        {"GET", "/panic", "", 500, `{"error":"something went wrong here; the log tells what"}`},
		"a process that says nothing else is well":    {"GET", "/healthz", "", 200, "ok\n"},
		"a process that isn't ready says why":         {"GET", "/readyz", "", 503, "the caches are not filled\n"},
		"metrics are shown as text":                   {"GET", "/metrics", "", 200, "# HELP dormouse_test_total A test.\n# TYPE dormouse_test_total counter\ndormouse_test_total 3\n"},
		"HEAD is answered where GET is, with no body": {"HEAD", "/healthz", "", 200, ""},
		"and so it is of the metrics":                 {"HEAD", "/metrics", "", 200, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status, body := call(t, tc.method, url+tc.path, tc.body)
			if status != tc.wantStatus {
				t.Errorf("status %d, want %d", status, tc.wantStatus)
			}
			if diff := cmp.Diff(tc.wantBody, body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
	if panicked != "oh dear" {
		t.Errorf("OnPanic was told %v", panicked)
	}
	want := map[string]float64{"404": 1, "405": 1, "413": 1, "500": 1}
	if diff := cmp.Diff(want, refusals(t, counts)); diff != "" {
		t.Errorf("refused by code (-want +got):\n%s", diff)
	}
}

// refusals are what a server has counted, by code.
func refusals(t *testing.T, counts *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := counts.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "dormouse_http_refused_total" && family.GetName() != "dormouse_http_closed_connections_total" {
			t.Errorf("there is a metric %s", family.GetName())
		}
		for _, m := range family.GetMetric() {
			got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return got
}

func TestSomethingThatIsNotHTTPIsRefused(t *testing.T) {
	s := New(Options{Address: "127.0.0.1:0", ReadTimeout: time.Second})
	url, _ := start(t, s)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("\x00\x01\x02 hello\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(conn)
	if !bytes.HasPrefix(got, []byte("HTTP/1.1 400 ")) {
		t.Errorf("answered %q, want a 400", got)
	}
}

func TestStopLetsARequestFinish(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	s := New(Options{Address: "127.0.0.1:0"})
	s.Handle(http.MethodGet, "/slow", func(ctx *fasthttp.RequestCtx) {
		close(begun)
		<-finish
		ctx.SetBodyString("done")
	})
	url, stop := start(t, s)
	answer := make(chan string, 1)
	go func() {
		_, body := call(t, "GET", url+"/slow", "")
		answer <- body
	}()
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	close(finish)
	if got := <-answer; got != "done" {
		t.Errorf("answered %q, want done", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

func TestATakenPortIsToldAtOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	s := New(Options{Address: taken.Addr().String()})
	if err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "listening for HTTP on") {
		t.Errorf("Listen said %v", err)
	}
}

func TestAScrapeIsAnsweredInWhatIsAroundIt(t *testing.T) {
	registry := prometheus.NewRegistry()
	within, gathered := false, false
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "around", Help: "A."}, func() float64 {
		gathered = within
		return 1
	}))
	s := New(Options{Address: "127.0.0.1:0", Gatherer: registry, Log: logr.Discard(), AroundScrape: func(scrape func()) {
		within = true
		scrape()
		within = false
	}})
	url, _ := start(t, s)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+MetricsPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(body), "around 1") || !gathered {
		t.Errorf("answered %d %s, %v; gathered within: %t", res.StatusCode, body, err, gathered)
	}
}
