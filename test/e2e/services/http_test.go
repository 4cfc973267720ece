package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// A client that keeps its connection is answered by the resolver, wakes the service, and goes on
// past the resolver, without a request that fails.
func TestAReusedConnectionGoesFromProbesOverAWakeToTheServer(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	s := asleepSite(ctx, t, env.Game{Namespace: ns, ChangeElastic: func(es *v1alpha1.ElasticService) {
		probe := v1alpha1.HTTPProbe{Path: "/ping", Response: v1alpha1.HTTPProbeResponse{Body: "asleep, and well"}}
		es.Spec.Ports[0].Asleep = &v1alpha1.Asleep{Probes: []v1alpha1.HTTPProbe{probe}}
	}})
	for range 3 {
		res, err := s.do(ctx, http.MethodGet, "/ping", nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "asleep, and well" {
			t.Fatalf("the probe was answered %q, %v", body, errors.Join(err, res.Body.Close()))
		}
	}
	es, err := suite.Cluster.WaitPhase(ctx, s.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		t.Fatal(err)
	}
	if es.Status.LastWakeTime != nil {
		t.Errorf("a probe woke the service at %s", es.Status.LastWakeTime)
	}
	from := post(ctx, t, s)
	if !s.throughResolver(t, from) {
		t.Errorf("the request that woke the service came from %s, want a resolver", from)
	}
	if n := s.dials.Load(); n != 1 {
		t.Errorf("the probes and the request that woke the service took %d connections, want 1", n)
	}
	s.awake(ctx, t)
	select {
	case <-s.closed:
	case <-ctx.Done():
		t.Fatal("the resolver keeps the idle connection")
	}
	if from = post(ctx, t, s); s.throughResolver(t, from) {
		t.Errorf("the last request came from %s, a resolver, want it past them", from)
	}
}

// post makes a request that is not repeated when it fails.
func post(ctx context.Context, t *testing.T, s *site) (from string) {
	t.Helper()
	from, err := s.sum(ctx, strings.NewReader("hello"), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	return from
}

// A server that breaks off in the middle of its answer is seen to: nothing makes a shorter answer
// of it that looks whole.
func TestATruncatedAnswerStaysTruncated(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	s := asleepSite(ctx, t, env.Game{Namespace: ns})
	for _, when := range []string{"cold", "warm"} {
		res, err := s.do(ctx, http.MethodGet, "/truncated", nil)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil || len(body) > 100 || res.ContentLength != 1000 {
			t.Errorf("%s: %d of %d bytes and the error %v, want an error", when, len(body), res.ContentLength, err)
		}
		if from := res.Header.Get(clientHeader); s.throughResolver(t, from) != (when == "cold") {
			t.Errorf("%s: the client came from %s", when, from)
		}
		s.awake(ctx, t)
	}
}

// A browser sees a page that loads itself again until the service is up, while a program's request
// waits for its answer, which says that it was held.
func TestABrowserSeesAPageWhileAProgramIsHeld(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	// It boots for longer than the browser takes to come after the program.
	s := asleepSite(ctx, t, env.Game{Namespace: ns, Args: []string{"--boot-delay=3s"}, ChangeElastic: func(es *v1alpha1.ElasticService) {
		es.Spec.Ports[0].HTTP = &v1alpha1.PortHTTP{
			WaitingPage: &v1alpha1.WaitingPage{Title: "The <shop> opens"}, ColdStartHeader: true,
		}
	}})
	program := make(chan error, 1)
	go func() {
		res, err := s.do(ctx, http.MethodPost, "/sum", strings.NewReader("hello"))
		if err == nil {
			err = res.Body.Close()
			if cold := res.Header.Get("Cold-Start"); cold != "true" {
				err = errors.Join(err, fmt.Errorf("the program was told Cold-Start: %q, want true", cold))
			}
		}
		program <- err
	}()
	res := browse(ctx, t, s)
	page, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(page), "The &lt;shop&gt; opens") || !strings.Contains(string(page), `http-equiv="refresh"`) {
		t.Errorf("the browser saw %s and\n%s", res.Status, page)
	}
	if res.Header.Get("Retry-After") == "" || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the page's headers are %v", res.Header)
	}
	if err := <-program; err != nil {
		t.Error(err)
	}
	s.awake(ctx, t)
	s.client.CloseIdleConnections()
	res = browse(ctx, t, s)
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Cold-Start") != "" {
		t.Errorf("the browser saw %s and Cold-Start: %q once the service was up", res.Status, res.Header.Get("Cold-Start"))
	}
}

// browse asks as a browser does whose user follows a link.
func browse(ctx context.Context, t *testing.T, s *site) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("/healthz"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	req.Header.Set("Sec-Fetch-Dest", "document")
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}
