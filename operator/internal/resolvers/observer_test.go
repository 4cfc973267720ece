package resolvers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/tokenfile"
)

// pod is a resolver's HTTP server on loopback, with two services.
type pod struct {
	broken atomic.Bool
	// fails is set where questions fail that are under way.
	fails atomic.Bool
	// old is set where it doesn't know UIDsQuery, and more where it has one more service.
	old, more bool
	// hold, once made, has each question wait for something in it.
	hold chan struct{}

	mu sync.Mutex
	// asked are the questions for /routes, and sessions those for /sessions.
	asked, sessions []string
}

func (p *pod) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.broken.Load() || r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	query := r.URL.Query()
	of := func(uid string) bool {
		return r.URL.RawQuery == "" || p.old && query.Get("uid") == "" || query.Get("uid") == uid || slices.Contains(strings.Split(query.Get("uids"), ","), uid)
	}
	var answer any
	p.mu.Lock()
	switch r.URL.Path {
	case informerapi.RoutesPath:
		p.asked = append(p.asked, r.URL.RawQuery)
		routes := informerapi.RoutesResponse{}
		there := []informerapi.Route{{UID: "es-1", Phase: "Asleep"}, {UID: "es-2", Phase: "Awake"}}
		if p.more {
			there = append(there, informerapi.Route{UID: "es-3"})
		}
		for _, route := range there {
			if of(route.UID) {
				routes.Routes = append(routes.Routes, route)
			}
		}
		answer = routes
	case informerapi.SessionsPath:
		p.sessions = append(p.sessions, r.URL.RawQuery)
		sessions := informerapi.SessionsResponse{Now: time.Now().Add(-time.Hour)}
		if of("es-1") {
			sessions.Services = []informerapi.Sessions{{UID: "es-1", Sessions: 3, Queued: 2}}
		}
		answer = sessions
	}
	p.mu.Unlock()
	if p.hold != nil && r.URL.Path == informerapi.RoutesPath {
		<-p.hold
	}
	if p.fails.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// questions are those that it got, each of which is for both.
func (p *pod) questions(t *testing.T) []string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.asked, p.sessions) {
		t.Errorf("it was asked %q for routes, and %q for sessions", p.asked, p.sessions)
	}
	return p.asked
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
	p := &pod{}
	o, host := newObserver(t, p)
	v := o.View(t.Context(), host, "es-1")
	if v.Err != nil || len(v.Routes) != 1 || v.Routes["es-1"].Phase != "Asleep" || v.Sessions["es-1"].Sessions != 3 || v.Sessions["es-1"].Queued != 2 {
		t.Errorf("view = %+v, want that of es-1", v)
	}
	if d := (v.ClockSkew - time.Hour).Abs(); d > time.Minute {
		t.Errorf("clock skew = %s, want about an hour", v.ClockSkew)
	}
	if v := o.View(t.Context(), host, "es-2"); len(v.Routes) != 1 || v.Routes["es-2"].Phase != "Awake" || len(v.Sessions) != 0 {
		t.Errorf("view = %+v, want that of es-2, which has no client", v)
	}
	if diff := cmp.Diff([]string{"uid=es-1", "uid=es-2"}, p.questions(t)); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

// What is asked grows with those who ask, and not with the services that there are. The question that they
// share is sent after each of them came.
func TestWhoComesWhileAQuestionIsUnderWaySharesTheNextOne(t *testing.T) {
	o, host, p, group := held(t)
	joined := func(want int) func() bool {
		return func() bool { return o.pods[host].next != nil && len(o.pods[host].next.uids) == want }
	}
	first := time.Now()
	for range 25 {
		for _, uid := range []string{"es-1", "es-2"} {
			group.Go(func() {
				v := o.View(t.Context(), host, uid)
				if _, there := v.Routes[uid]; v.Err != nil || !there || v.Asked.Before(first) {
					t.Errorf("view = %+v, want a later one than %s with %s", v, first, uid)
				}
			})
		}
	}
	o.until(t, "both services are asked about next", joined(2))
	last := time.Now()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if v := o.View(gone, host, "es-2"); !errors.Is(v.Err, context.Canceled) {
		t.Errorf("who is gone gets %+v, want that the context is canceled", v)
	}
	close(p.hold)
	group.Wait()
	if v := o.View(t.Context(), host, "es-1"); v.Asked.Before(last) {
		t.Errorf("view = %+v, want one that is asked after the call", v)
	}
	questions := p.questions(t)
	if len(questions) < 3 || questions[0] != "uid=es-1" || questions[1] != "uids=es-1%2Ces-2" {
		t.Errorf("questions = %q, want one about es-1, and the next one about both", questions)
	}
}

// An answer about all services is shared for a moment by those who ask about many.
func TestWhoAsksAboutManyServicesAsksAboutAll(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	var most, many []string
	for i := range informerapi.MaxUIDs {
		most = append(most, fmt.Sprintf("other-%d", i))
	}
	many = append(many, most...)
	many = append(many, "es-1")
	if v := o.View(t.Context(), host, most...); len(v.Routes) != 0 {
		t.Errorf("view = %+v, want one of services that aren't there", v)
	}
	first := o.View(t.Context(), host, many...)
	if len(first.Routes) != 2 {
		t.Errorf("view = %+v, want that of all", first)
	}
	if v := o.View(t.Context(), host, many...); !v.Asked.Equal(first.Asked) {
		t.Errorf("view of %s, want the one of %s: that is new enough", v.Asked, first.Asked)
	}
	o.pods[host].all.Asked = first.Asked.Add(-maxAge)
	if v := o.View(t.Context(), host, many...); !v.Asked.After(first.Asked) {
		t.Errorf("view of %s, want a new one: the last one is too old", v.Asked)
	}
	o.pods[host].all.Asked = first.Asked.Add(-maxAge)
	if v := o.View(t.Context(), host, "es-1"); len(v.Routes) != 1 {
		t.Errorf("view = %+v, want that of es-1", v)
	}
	if all := o.pods[host].all; all.Routes != nil {
		t.Errorf("an answer about all that nobody may have any more is kept: %+v", all)
	}
	var about []int
	for _, q := range p.questions(t) {
		about = append(about, len(strings.FieldsFunc(q, func(r rune) bool { return r == '=' || r == '%' })))
	}
	if diff := cmp.Diff([]int{1 + informerapi.MaxUIDs, 0, 0, 2}, about); diff != "" {
		t.Errorf("the questions' sizes (-want +got):\n%s", diff)
	}
}

// held is a pod whose first question is under way, and who asks it.
func held(t *testing.T) (o *Observer, host string, p *pod, asking *sync.WaitGroup) {
	t.Helper()
	p = &pod{hold: make(chan struct{})}
	o, host = newObserver(t, p)
	o.most = 1
	asking = &sync.WaitGroup{}
	asking.Go(func() { o.View(t.Context(), host, "es-1") })
	o.until(t, "a question is under way", func() bool { return o.pods[host] != nil && o.pods[host].asking == 1 && o.pods[host].next == nil })
	return o, host, p, asking
}

func (o *Observer) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); ; runtime.Gosched() {
		o.mu.Lock()
		yes := is()
		o.mu.Unlock()
		if yes {
			return
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("it isn't so that %s", what)
		}
	}
}

// A pod that takes its time holds up no more than those that it has to.
func TestAFewQuestionsAreUnderWayAtATime(t *testing.T) {
	o, host, p, asking := held(t)
	o.most = 2
	asking.Go(func() { o.View(t.Context(), host, "es-2") })
	o.until(t, "the second question is under way", func() bool { return o.pods[host].asking == 2 && o.pods[host].next == nil })
	asking.Go(func() { o.View(t.Context(), host, "es-1") })
	o.until(t, "the third one waits", func() bool { return o.pods[host].next != nil })
	p.fails.Store(true)
	close(p.hold)
	asking.Wait()
	o.until(t, "nobody asks any more", func() bool { return o.pods[host].asking == 0 })
	if rest := o.pods[host].rest; rest != minRest {
		t.Errorf("it is left alone for %s after two questions that failed together, want %s", rest, minRest)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) != 2 {
		t.Errorf("questions = %q, want two", p.asked)
	}
}

func TestSeveralWhoTogetherAskAboutManyAskAboutAll(t *testing.T) {
	o, host, p, asking := held(t)
	var many []string
	for i := range informerapi.MaxUIDs {
		many = append(many, fmt.Sprintf("other-%d", i))
	}
	asking.Go(func() { o.View(t.Context(), host, many...) })
	o.until(t, "the first has joined", func() bool { return o.pods[host].next != nil })
	asking.Go(func() {
		if v := o.View(t.Context(), host, "es-2"); v.Routes["es-2"].Phase != "Awake" {
			t.Errorf("view = %+v, want one with es-2", v)
		}
	})
	o.until(t, "the second has joined", func() bool { return o.pods[host].next.all })
	close(p.hold)
	asking.Wait()
	if diff := cmp.Diff([]string{"uid=es-1", ""}, p.questions(t)); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

// Who comes while a question is under way that fails gets no answer either, and the pod isn't asked.
func TestWhoCameMeanwhileIsToldThatAPodFailed(t *testing.T) {
	o, host, p, asking := held(t)
	asking.Go(func() {
		if v := o.View(t.Context(), host, "es-2"); v.Err == nil {
			t.Errorf("view = %+v, want an error", v)
		}
	})
	o.until(t, "somebody has joined", func() bool { return o.pods[host].next != nil })
	p.fails.Store(true)
	close(p.hold)
	asking.Wait()
	if rest := o.pods[host].rest; rest != minRest {
		t.Errorf("it is left alone for %s, want %s", rest, minRest)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if diff := cmp.Diff([]string{"uid=es-1"}, p.asked); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

// An older pod doesn't know a question about several services. It is asked about each alone once that shows.
func TestAnOlderPodIsAskedAboutEachServiceAlone(t *testing.T) {
	p := &pod{old: true}
	o, host := newObserver(t, p)
	for range 2 {
		v := o.View(t.Context(), host, "es-1", "other")
		if v.Err != nil || v.Routes["es-1"].Phase != "Asleep" || v.Sessions["es-1"].Sessions != 3 {
			t.Errorf("view = %+v, want one with es-1", v)
		}
	}
	if v := o.View(t.Context(), host, "es-1", "es-2"); len(v.Routes) != 2 || v.Routes["es-2"].Phase != "Awake" {
		t.Errorf("view = %+v, want that of both", v)
	}
	p.more = true // routes than were asked about
	if v := o.View(t.Context(), host, "es-1", "es-2"); len(v.Routes) < 2 {
		t.Errorf("view = %+v, want that of both", v)
	}
	want := []string{"uids=es-1%2Cother", "uids=es-1%2Cother", "uids=es-1%2Ces-2", "uids=es-1%2Ces-2"}
	if v := o.View(t.Context(), host, "es-1", "es-2"); len(v.Routes) < 2 || v.Routes["es-2"].Phase != "Awake" || v.Sessions["es-1"].Sessions != 3 {
		t.Errorf("view = %+v, want that of both", v)
	}
	want = append(want, "uid=es-1", "uid=es-2")
	o.ViewInTurn(t.Context(), host, "es-1", func() []string { return []string{"es-2"} })
	want = append(want, "uid=es-1")
	if diff := cmp.Diff(want, p.questions(t)); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

func TestWithoutServicesAPodIsAskedWhetherItAnswers(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	if v := o.View(t.Context(), host); v.Err != nil || len(v.Routes)+len(v.Sessions) > 0 || v.Answered.IsZero() {
		t.Errorf("view = %+v, want one of a pod that answers", v)
	}
	if diff := cmp.Diff([]string{"uid=-"}, p.questions(t)); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

func TestAPodThatFailsIsNotAskedAgainAtOnce(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	good := o.View(t.Context(), host, "es-1")
	p.broken.Store(true)
	for range 3 {
		if v := o.View(t.Context(), host, "es-1"); v.Err == nil || !v.Answered.Equal(good.Answered) || !v.FirstAsked.Equal(good.FirstAsked) || good.Answered.IsZero() {
			t.Errorf("view of a failing pod = %+v, want an error, and an answer at %s", v, good.Answered)
		}
		p.broken.Store(false) // it isn't asked
	}
	if n := len(p.questions(t)); n != 1 {
		t.Errorf("the pod answered %d questions, want one", n)
	}
	if rest := o.pods[host].rest; rest != minRest {
		t.Errorf("it is left alone for %s, want %s", rest, minRest)
	}
	o.pods[host].restUntil = time.Now()
	p.broken.Store(true)
	o.View(t.Context(), host, "es-1")
	if rest := o.pods[host].rest; rest != 2*minRest {
		t.Errorf("then it is left alone for %s, want %s", rest, 2*minRest)
	}
	p.broken.Store(false)
	o.pods[host].restUntil = time.Now()
	if v := o.View(t.Context(), host, "es-1"); v.Err != nil || !v.FirstAsked.Equal(good.FirstAsked) || o.pods[host].rest != 0 {
		t.Errorf("view = %+v, and it is left alone for %s; want one of a pod that answers", v, o.pods[host].rest)
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
	first := o.View(t.Context(), "127.0.0.1", "es-1")
	if took := time.Since(began); first.Err == nil || took >= 2*askTimeout {
		t.Errorf("the first question took %s (%v), want an error within one timeout", took, first.Err)
	}
	if first.FirstAsked.Before(began) {
		t.Errorf("first asked at %s, want after %s: the pod has not been silent for longer", first.FirstAsked, began)
	}
	began = time.Now()
	for range 100 {
		o.View(t.Context(), "127.0.0.1", "es-2")
	}
	if took := time.Since(began); took > minRest/2 {
		t.Errorf("a hundred questions after that took %s, want none to be sent", took)
	}
}

func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	o, host := newObserver(t, &pod{})
	o.View(t.Context(), host, "es-1")
	is := o.pods[host]
	if o.Keep(map[string]bool{host: true}); o.pods[host] != is {
		t.Error("one that is still there is forgotten")
	}
	if o.Keep(map[string]bool{}); len(o.pods) != 0 {
		t.Errorf("%d pods are kept, want none", len(o.pods))
	}
}

func TestOfARouteIsKeptWhatIsRead(t *testing.T) {
	since := time.Unix(1000, 0)
	got := routeOf(&informerapi.Route{
		UID: "es-1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: "Asleep", PhaseSince: &since,
		Ports: []informerapi.RoutePort{
			{Name: "game", Protocol: "minecraft", Port: 10001, Listening: true}, {Name: "front", Port: 10002, Front: "games/front", Error: "it is taken"},
		},
	})
	want := Route{Phase: "Asleep", PhaseSince: &since, Ports: []Port{{Port: 10001, Listening: true}, {Port: 10002, Front: true, Error: "it is taken"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

// BenchmarkAView is what a report costs the operator, with 10,000 services.
func BenchmarkAView(b *testing.B) {
	var routes informerapi.RoutesResponse
	for i := range 10000 {
		routes.Routes = append(routes.Routes, informerapi.Route{
			UID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Namespace: "games", Name: fmt.Sprintf("lobby-%d", i), Service: fmt.Sprintf("lobby-%d", i), Phase: "Asleep", PhaseSince: new(time.Unix(int64(i), 0)),
			Ports: []informerapi.RoutePort{{Name: "game", Protocol: "minecraft", Port: int32(10000 + i), Listening: true}},
		})
	}
	o, host := newObserver(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == informerapi.SessionsPath:
			_ = json.NewEncoder(w).Encode(informerapi.SessionsResponse{})
		case r.URL.RawQuery != "":
			_ = json.NewEncoder(w).Encode(informerapi.RoutesResponse{Routes: routes.Routes[:1]})
		default:
			_ = json.NewEncoder(w).Encode(routes)
		}
	}))
	b.Run("of all services", func(b *testing.B) {
		for b.Loop() {
			o.Keep(nil)
			o.View(b.Context(), host)
		}
	})
	b.Run("of one service", func(b *testing.B) {
		for b.Loop() {
			o.View(b.Context(), host, routes.Routes[0].UID)
		}
	})
}
