package httpserver

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"
)

// A second's worth of refusals takes its second; what is answered well waits for
// nothing, though it is asked for in the midst of them.
func TestRefusalsBeyondTheirRateWait(t *testing.T) {
	t.Parallel()
	s := newSlowdown()
	var good, bad fasthttp.RequestCtx
	good.Init(&fasthttp.Request{}, nil, nil)
	bad.Init(&fasthttp.Request{}, nil, nil)
	good.Response.SetStatusCode(fasthttp.StatusAccepted)
	bad.Response.SetStatusCode(fasthttp.StatusUnauthorized)
	started := time.Now()
	for range refusalBurst + refusalRate/10 {
		s.wait(&bad)
	}
	if took, want := time.Since(started), 90*time.Millisecond; took < want {
		t.Errorf("%d refusals took %s, want %s at least", refusalBurst+refusalRate/10, took, want)
	}
	before := s.limiter.Tokens()
	s.wait(&good)
	if after := s.limiter.Tokens(); after < before {
		t.Errorf("a good answer took a refusal's place: %f tokens, and %f before", after, before)
	}
}

// What is held is bounded, and so is what the next to be refused waits.
func TestRefusalsBeyondWhatIsHeldEndTheirConnection(t *testing.T) {
	t.Parallel()
	s := newSlowdown()
	for range refusalsHeld {
		s.held <- struct{}{}
	}
	s.limiter = rate.NewLimiter(0.001, 1) // its next comes in a quarter of an hour
	s.limiter.Allow()
	var bad fasthttp.RequestCtx
	bad.Init(&fasthttp.Request{}, nil, nil)
	bad.Response.SetStatusCode(fasthttp.StatusUnauthorized)
	s.wait(&bad)
	if !bad.Response.ConnectionClose() {
		t.Error("the connection is kept, want it to end")
	}
}

// It is so for what a handler refuses and for what no handler sees.
func TestAServerHoldsRefusalsBack(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"no such path": "", "too large": strings.Repeat(" ", 2<<10)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(Options{Address: "127.0.0.1:0", MaxBodyBytes: 1 << 10, Log: logr.Discard()})
			s.slow.limiter = rate.NewLimiter(10, 1)
			url, _ := start(t, s)
			started := time.Now()
			for range 4 {
				if code, text := call(t, http.MethodPost, url+"/nothing", body); code < 400 || code >= 500 {
					t.Fatalf("answered %d %q, want a refusal", code, text)
				}
			}
			if took, want := time.Since(started), 290*time.Millisecond; took < want {
				t.Errorf("four refusals at ten a second took %s, want %s", took, want)
			}
		})
	}
}
