package resolvers

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/tokenfile"
)

// pod is a resolver's HTTP server on loopback.
type pod struct {
	asked  atomic.Int32 // for /sessions
	all    atomic.Int32 // for /routes of all services
	broken atomic.Bool
}

func (p *pod) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.broken.Load() || r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var answer any
	switch r.URL.Path {
	case informerapi.RoutesPath:
		uid := r.URL.Query().Get("uid")
		if uid == "" {
			p.all.Add(1)
		}
		routes := informerapi.RoutesResponse{}
		for _, route := range []informerapi.Route{{UID: "es-1", Phase: "Asleep"}, {UID: "es-2", Phase: "Awake"}} {
			if uid == "" || uid == route.UID {
				routes.Routes = append(routes.Routes, route)
			}
		}
		answer = routes
	case informerapi.SessionsPath:
		p.asked.Add(1)
		answer = informerapi.SessionsResponse{
			Now: time.Now().Add(-time.Hour), Services: []informerapi.Sessions{{UID: "es-1", Sessions: 3, Queued: 2}},
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func newObserver(t testing.TB, p http.Handler) (*Observer, string) {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return NewObserver(n, tokenfile.New(token)), host
}

func TestAViewHasWhatThePodSays(t *testing.T) {
	o, host := newObserver(t, &pod{})
	v := o.View(t.Context(), host, 0)
	if v.Err != nil || v.Routes["es-1"].Phase != "Asleep" || v.Sessions["es-1"].Sessions != 3 || v.Sessions["es-1"].Queued != 2 {
		t.Errorf("view = %+v", v)
	}
	if d := (v.ClockSkew - time.Hour).Abs(); d > time.Minute {
		t.Errorf("clock skew = %s, want about an hour", v.ClockSkew)
	}
}

func TestOneAnswerServesAllWhoAskAtAboutTheSameTime(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	o.View(t.Context(), host, time.Minute)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() { o.View(t.Context(), host, time.Minute) })
	}
	group.Wait()
	if n := p.asked.Load(); n != 1 {
		t.Errorf("the pod was asked %d times, want once", n)
	}
}

func TestAQuestionAboutOneServiceIsAskedAfterTheCallAndAboutThatAlone(t *testing.T) {
	o, host := newObserver(t, &pod{})
	o.View(t.Context(), host, time.Minute)
	for i := range 5 {
		before := time.Now()
		v := o.ViewOf(t.Context(), host, "es-2")
		if v.Asked.Before(before) {
			t.Errorf("answer %d is of a question before the call", i)
		}
		if len(v.Routes) != 1 || v.Routes["es-2"].Phase != "Awake" {
			t.Errorf("routes = %+v, want that of es-2 alone", v.Routes)
		}
	}
	if v := o.View(t.Context(), host, time.Minute); len(v.Routes) != 2 {
		t.Errorf("routes of all services = %+v, want two", v.Routes)
	}
}

func TestAPodThatFailsAQuestionAboutOneServiceIsNotAskedAgainAtOnce(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	p.broken.Store(true)
	if v := o.ViewOf(t.Context(), host, "es-1"); v.Err == nil || v.FirstAsked.IsZero() {
		t.Errorf("view = %+v, want an error, and when the pod was first asked", v)
	}
	p.broken.Store(false)
	if v := o.ViewOf(t.Context(), host, "es-1"); v.Err == nil || p.asked.Load() != 0 {
		t.Error("the pod was asked again at once after it failed")
	}
}

func TestAPodThatFailsIsNotAskedAgainAtOnceAndKeepsWhatItSaid(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	good := o.View(t.Context(), host, 0)
	p.broken.Store(true)
	v := o.View(t.Context(), host, 0)
	if v.Err == nil || !v.Answered.Equal(good.Answered) || v.Sessions["es-1"].Sessions != 3 {
		t.Errorf("view of a failing pod = %+v, want an error and what it said before", v)
	}
	p.broken.Store(false)
	asked := p.asked.Load()
	if v := o.View(t.Context(), host, 0); v.Err == nil || p.asked.Load() != asked {
		t.Error("the pod was asked again at once after it failed")
	}
}

func TestASilentPodHoldsUpOneQuestionAndThenNobody(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	o, _ := newObserver(t, &pod{})
	o.port = silent.Addr().(*net.TCPAddr).Port
	began := time.Now()
	first := o.View(t.Context(), "127.0.0.1", 0)
	if took := time.Since(began); first.Err == nil || took >= 2*askTimeout {
		t.Errorf("the first question took %s (%v), want an error within one timeout", took, first.Err)
	}
	if first.FirstAsked.Before(began) {
		t.Errorf("first asked at %s, want after %s: the pod has not been silent for longer", first.FirstAsked, began)
	}
	began = time.Now()
	for range 100 {
		o.View(t.Context(), "127.0.0.1", 0)
	}
	if took := time.Since(began); took > minRest/2 {
		t.Errorf("a hundred questions after that took %s, want none to be sent", took)
	}
}

func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	o, host := newObserver(t, &pod{})
	o.View(t.Context(), host, 0)
	o.Keep(map[string]bool{})
	if len(o.views) != 0 {
		t.Errorf("%d views are kept, want none", len(o.views))
	}
}

func TestWhoAsksAgainAndAgainWaitsForNoAnswer(t *testing.T) {
	const maxAge = 2 * time.Second
	o, host := newObserver(t, &pod{})
	first := o.View(t.Context(), host, maxAge)
	ctx, cancel := context.WithCancel(t.Context())
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for time.Since(first.Asked) < maxAge/2 {
		o.View(ctx, host, maxAge)
		<-tick.C
	}
	// Who was the reason for the question is gone before its answer.
	o.View(ctx, host, maxAge)
	cancel()
	for !o.lastView(host).Asked.After(first.Asked) {
		if time.Since(first.Asked) > 10*time.Second {
			t.Fatal("the pod was not asked again")
		}
		<-tick.C
	}
	if age := o.lastView(host).Asked.Sub(first.Asked); age < maxAge/2 || age > maxAge {
		t.Errorf("the pod was asked again after %s, want from %s to %s", age, maxAge/2, maxAge)
	}
}
