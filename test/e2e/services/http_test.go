package services

import (
	"context"
	"errors"
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
