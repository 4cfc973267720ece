package restapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/operator/internal/restapi/gamecalls"
)

// sidecar is the stub of one: what it heard last, and what it answers to those who show its code.
type sidecar struct {
	code   string
	heard  atomic.Value // string
	asked  atomic.Int32
	status atomic.Int32
	says   atomic.Value // string
}

func (s *sidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	body, _ := io.ReadAll(r.Body)
	s.heard.Store(r.Method + " " + r.URL.Path + " " + string(body))
	status := int(s.status.Load())
	if r.Header.Get(gameapi.CodeHeader) != s.code {
		status = http.StatusUnauthorized
	}
	if status/100 == 3 {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, s.says.Load().(string))
}

// processWorld is the API with the Server lobby and a stub for its sidecar.
type processWorld struct {
	t       *testing.T
	api     *httptest.Server
	calls   *gamecalls.Calls
	handler http.Handler
	sidecar *sidecar
	code    string
	log     atomic.Value // string
	cluster client.Client
}

func newProcessWorld(t *testing.T) *processWorld {
	t.Helper()
	w := &processWorld{t: t, code: gameapi.NewCode("servers", "lobby")}
	w.sidecar = &sidecar{code: w.code}
	w.sidecar.status.Store(http.StatusOK)
	w.sidecar.says.Store("{}")
	beside := httptest.NewServer(w.sidecar)
	t.Cleanup(beside.Close)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := func(name, podIP string, asked bool) *v1alpha1.Server {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "servers", Name: name}}
		if asked {
			s.Annotations = map[string]string{wellknown.GameAPIAnnotation: "true"}
		}
		s.Status = v1alpha1.ServerStatus{
			PodIP: podIP, State: v1alpha1.ServerReady, Address: "192.0.2.1", Players: &v1alpha1.PlayersStatus{Current: 2},
			Ports: []v1alpha1.ServerPortStatus{{Name: "game", Port: 7001, Protocol: v1alpha1.ServerProtocolUDP}},
		}
		return s
	}
	asleep := server("asleep", "", true)
	asleep.Status.State = v1alpha1.ServerStopped
	w.cluster = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		server("lobby", "127.0.0.1", true), server("arena", "127.0.0.1", true), server("quiet", "127.0.0.1", false), asleep,
	).Build()
	calls := gamecalls.New(w.cluster, "servers")
	at, err := url.Parse(beside.URL)
	if err != nil {
		t.Fatal(err)
	}
	if calls.Port, err = strconv.Atoi(at.Port()); err != nil {
		t.Fatal(err)
	}
	w.log.Store("")
	w.calls = calls
	mux := http.NewServeMux()
	api := newAPI(mux)
	g := &gate{
		rates: utilcache.NewLRUExpireCache(1), metrics: NewMetrics(nil), now: time.Now,
		log: funcr.New(func(_, args string) { w.log.Store(w.log.Load().(string) + args) }, funcr.Options{}),
	}
	api.UseMiddleware(g.middleware)
	(&processes{calls}).register(api)
	w.api, w.handler = httptest.NewServer(mux), mux
	t.Cleanup(w.api.Close)
	return w
}

// call makes a call with a code in the query, or else with headers.
func (w *processWorld) call(method, path, code, body string, headers ...string) (int, string, http.Header) {
	w.t.Helper()
	if code != "" {
		path += "?code=" + url.QueryEscape(code)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.api.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}

func (w *processWorld) want(status int, words, path, code, body string, headers ...string) {
	w.t.Helper()
	if got, text, _ := w.call(http.MethodPost, path, code, body, headers...); got != status || !strings.Contains(text, words) {
		w.t.Errorf("%s %s: answered %d %s, want %d with %q", path, body, got, text, status, words)
	}
}

// Each call comes to the sidecar, whichever way the code was shown, and the code comes into no log.
func TestAGamesCallsComeToItsSidecar(t *testing.T) {
	t.Parallel()
	w := newProcessWorld(t)
	whose := `{"serverName":"lobby","namespace":"servers",`
	for _, c := range []struct{ path, body, heard string }{
		{"/setactiveplayers", whose + `"playerCount":3}`, `POST /v1/game/players {"playerCount":3}`},
		{"/setactiveplayers", `{"playerCount":0,"serverName":"lobby","more":[1]}`, `POST /v1/game/players {"playerCount":0}`},
		{"/setdgsstate", whose + `"state":"running"}`, `POST /v1/game/state {"state":"running"}`},
		{"/setsdgsstate", whose + `"state":"Idle"}`, `POST /v1/game/state {"state":"Idle"}`},
		{"/setdgshealth", whose + `"health":"Healthy"}`, `POST /v1/game/health {"health":"Healthy"}`},
		{"/setsdgshealth", `{"health":"Failed"}`, `POST /v1/game/health {"health":"Failed"}`},
		{"/setdgsmarkedfordeletion", whose + `"markedForDeletion":true}`, `POST /v1/game/deletion {"markedForDeletion":true}`},
	} {
		w.want(200, `{"success":true}`, c.path, w.code, c.body)
		if got := w.sidecar.heard.Load(); got != c.heard {
			t.Errorf("%s: the sidecar heard %s, want %s", c.path, got, c.heard)
		}
	}
	w.want(200, "", "/setactiveplayers", "", `{"playerCount":3}`, "Authorization", "Bearer "+w.code)
	w.want(200, "", "/setactiveplayers", "", `{"playerCount":3}`, gameapi.CodeHeader, w.code)
	if said := w.log.Load().(string); strings.Contains(said, w.code) {
		t.Errorf("the log has the code: %s", said)
	}
}

// What the sidecar answers is told, and what it can't answer.
func TestASidecarsAnswersAreTold(t *testing.T) {
	t.Parallel()
	w := newProcessWorld(t)
	for _, c := range []struct {
		sidecar int
		says    string
		status  int
		words   string
	}{
		{400, `{"error":"state must be Idle"}`, 400, `"State must be Idle."`},
		{409, `{"error":"too late"}`, 409, `"conflict"`},
		{404, `{"error":"there is nothing at this path"}`, 503, "sidecar is older"},
		{500, `x`, 503, "send the same again"},
		{302, `{}`, 503, "send the same again"},
	} {
		w.sidecar.status.Store(int32(c.sidecar))
		w.sidecar.says.Store(c.says)
		w.want(c.status, c.words, "/setdgsstate", w.code, `{"state":"Idle"}`)
		if heard := w.sidecar.heard.Load().(string); strings.Contains(heard, "elsewhere") {
			t.Errorf("the call was led to %s", heard)
		}
	}
	asleep := gameapi.NewCode("servers", "asleep")
	w.want(503, "no Pod", "/setdgsstate", asleep, `{"state":"Idle"}`)
	s := &v1alpha1.Server{}
	if err := w.cluster.Get(t.Context(), client.ObjectKey{Namespace: "servers", Name: "asleep"}, s); err != nil {
		t.Fatal(err)
	}
	s.Status.PodIP = "127.0.0.2" // where nobody listens
	if err := w.cluster.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.want(503, "doesn't answer", "/setdgsstate", asleep, `{"state":"Idle"}`)
}

// A code is its own Server's, and of one that takes part. No other one is told anything.
func TestAWrongCodeGetsNowhere(t *testing.T) {
	t.Parallel()
	w := newProcessWorld(t)
	const players = `{"playerCount":3}`
	for name, c := range map[string]struct {
		status           int
		words, code, say string
	}{
		"none":                          {401, "A Server's code is needed", "", players},
		"one that is none":              {401, "A Server's code is needed", "abc", players},
		"another Server's in the body":  {401, "isn't that of the Server", w.code, `{"playerCount":3,"serverName":"arena"}`},
		"another namespace in the body": {401, "isn't that of the Server", w.code, `{"playerCount":3,"namespace":"others"}`},
		"a Server in another namespace": {404, "namespace servers", gameapi.NewCode("others", "lobby"), players},
		"no Server":                     {404, "There is no Server gone", gameapi.NewCode("servers", "gone"), players},
		"a Server that takes no part":   {404, "There is no Server quiet", gameapi.NewCode("servers", "quiet"), players},
	} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.t = t
			w.want(c.status, c.words, "/setactiveplayers", c.code, c.say)
		})
	}
	if n := w.sidecar.asked.Load(); n != 0 {
		t.Errorf("a sidecar was asked %d times", n)
	}
	w.want(401, "isn't this Server's", "/setactiveplayers", gameapi.NewCode("servers", "lobby"), players)
	w.want(413, "", "/setactiveplayers", w.code, `{"playerCount":3,"more":"`+strings.Repeat("a", gameapi.MaxBodyBytes)+`"}`)
	w.want(400, "body.playerCount", "/setactiveplayers", w.code, `{"playerCount":-1}`)
}

// guess tries a wrong code from an address.
func (w *processWorld) guess(from string) *httptest.ResponseRecorder {
	return w.from(from, gameapi.NewCode("servers", "lobby"))
}

// from makes a call with a code from an address.
func (w *processWorld) from(address, code string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, "/setactiveplayers", strings.NewReader(`{"playerCount":3}`))
	r.RemoteAddr = address + ":40000"
	r.Header.Set(gameapi.CodeHeader, code)
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	return answer
}

// A stranger who tries codes without end keeps no game from its first call.
func TestAGameIsHeardThoughStrangersTryCodes(t *testing.T) {
	t.Parallel()
	w := newProcessWorld(t)
	w.calls.Tries = 0
	stopped := false
	for range 1000 {
		if stopped = w.guess("192.0.2.66").Code == http.StatusTooManyRequests; stopped {
			break
		}
	}
	if !stopped {
		t.Fatal("wrong codes are tried without end")
	}
	if answer := w.from("127.0.0.1", w.code); answer.Code != http.StatusOK {
		t.Errorf("the game is answered with %d %s", answer.Code, answer.Body)
	}
}

// Where a proxy hides who calls, a stranger who tries some hundred codes doesn't keep it out either.
func TestAGameIsHeardBehindAProxy(t *testing.T) {
	t.Parallel()
	w := newProcessWorld(t)
	for range 300 {
		if answer := w.guess("192.0.2.66"); answer.Code != http.StatusUnauthorized {
			t.Fatalf("a wrong code is answered with %d %s", answer.Code, answer.Body)
		}
	}
	if answer := w.from("192.0.2.66", w.code); answer.Code != http.StatusOK {
		t.Errorf("the game is answered with %d %s", answer.Code, answer.Body)
	}
}

// Whoever tries codes is stopped, and keeps no game from its calls; a game that calls without end
// is stopped, too.
func TestCallsAreLimited(t *testing.T) {
	t.Parallel()
	w := newProcessWorld(t)
	const players = `{"playerCount":3}`
	w.calls.Tries = 0
	w.want(200, "", "/setactiveplayers", w.code, players)
	limited := func(path string, code func() string) (http.Header, bool) {
		for range 1000 {
			if status, _, header := w.call(http.MethodPost, path, code(), players); status == http.StatusTooManyRequests {
				return header, true
			}
		}
		return nil, false
	}
	header, ok := limited("/setactiveplayers", func() string { return gameapi.NewCode("servers", "lobby") })
	if !ok || header.Get("Retry-After") != "1" {
		t.Errorf("wrong codes are tried without end: %t, %v", ok, header)
	}
	if n := w.sidecar.asked.Load(); n > 500 {
		t.Errorf("the sidecar was asked about %d codes", n)
	}
	w.want(200, "", "/setactiveplayers", w.code, players)
	if _, ok := limited("/setactiveplayers", func() string { return w.code }); !ok {
		t.Error("a game may call without end")
	}
}

// A game learns of the servers that take part, and that run.
func TestAGameLearnsWhoRuns(t *testing.T) {
	t.Parallel()
	w := newProcessWorld(t)
	status, text, _ := w.call(http.MethodGet, "/running", w.code, "")
	var list []gamecalls.Running
	if err := json.Unmarshal([]byte(text), &list); status != http.StatusOK || err != nil {
		t.Fatalf("answered %d %s: %v", status, text, err)
	}
	want := gamecalls.Running{
		Name: "arena", Namespace: "servers", PublicIP: "192.0.2.1", Ports: []gamecalls.RunningPort{{Name: "game", Port: 7001, Protocol: "UDP"}}, ActivePlayers: 2, State: "Ready",
	}
	if len(list) != 2 || list[1].Name != "lobby" || fmt.Sprint(list[0]) != fmt.Sprint(want) {
		t.Errorf("it learns of %+v", list)
	}
	if status, text, _ := w.call(http.MethodGet, "/running", gameapi.NewCode("servers", "lobby"), ""); status != http.StatusUnauthorized {
		t.Errorf("a stranger learns %d %s", status, text)
	}
}
