package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dormouse.dev/dormouse/operator/internal/restapi/page"
	"dormouse.dev/dormouse/operator/internal/restapi/page/pagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// streamTimeout bounds the wait for what a stream is to send.
const streamTimeout = 10 * time.Second

// world is a page over servers in memory.
type world struct {
	*pagetest.Fake
	t    *testing.T
	site *httptest.Server
}

func newWorld(t *testing.T, options page.Options) *world {
	t.Helper()
	fake := &pagetest.Fake{Tokens: map[string]pagetest.Caller{"good-token": "alice", "other-token": "bob"}}
	site := httptest.NewServer(page.New(fake, options))
	t.Cleanup(site.Close)
	// Streams end before the site closes.
	t.Cleanup(site.CloseClientConnections)
	return &world{Fake: fake, t: t, site: site}
}

// answer is what came back.
type answer struct {
	*http.Response
	body string
}

// request changes a request before it is sent.
type request func(*http.Request)

func bearer(token string) request {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func cookie(token string) request {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "dormouse-token", Value: token}) }
}

func header(name, value string) request {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// ask sends a request, and follows no redirect.
func (w *world) ask(method, path string, form url.Values, change ...request) answer {
	w.t.Helper()
	// A stream that ought to have been refused doesn't end by itself.
	ctx, cancel := context.WithTimeout(w.t.Context(), streamTimeout)
	defer cancel()
	response := w.open(ctx, method, path, form, change...)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %s, and then %v", method, path, response.Status, err)
	}
	return answer{Response: response, body: string(body)}
}

func (w *world) open(ctx context.Context, method, path string, form url.Values, change ...request) *http.Response {
	w.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(ctx, method, w.site.URL+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range change {
		c(r)
	}
	response, err := w.site.Client().Transport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return response
}

// get gets a page as alice.
func (w *world) get(path string) answer {
	w.t.Helper()
	return w.ask(http.MethodGet, path, nil, cookie("good-token"))
}

// post posts a form as alice.
func (w *world) post(path string, form url.Values) answer {
	w.t.Helper()
	return w.ask(http.MethodPost, path, form, cookie("good-token"))
}

// has fails the test unless an answer has a status and the words.
func (a answer) has(t *testing.T, status int, words ...string) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s: status %d, want %d:\n%s", a.Request.URL.Path, a.StatusCode, status, a.body)
	}
	for _, word := range words {
		if !strings.Contains(a.body, word) {
			t.Errorf("%s: no %q in\n%s", a.Request.URL.Path, word, a.body)
		}
	}
}

func (a answer) hasNot(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(a.body, word) {
			t.Errorf("%s: %q in\n%s", a.Request.URL.Path, word, a.body)
		}
	}
}

// event is one that a stream sent.
type event struct {
	name string
	data string
}

// listener reads a stream.
type listener struct {
	t      *testing.T
	events chan event
	end    context.CancelFunc
}

// listen opens a stream as alice, which ends with the test.
func (w *world) listen(path string, change ...request) *listener {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	response := w.open(ctx, http.MethodGet, path, nil, append([]request{cookie("good-token")}, change...)...) //nolint:bodyclose // whoever reads it closes it
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		w.t.Fatalf("stream %s: %s, %s", path, response.Status, response.Header.Get("Content-Type"))
	}
	l := &listener{t: w.t, events: make(chan event, 4096), end: cancel}
	go func() {
		defer response.Body.Close()
		defer close(l.events)
		var e event
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			line := lines.Text()
			switch {
			case strings.HasPrefix(line, "event: "):
				e.name = strings.TrimPrefix(line, "event: ")
			case strings.HasPrefix(line, "data: "):
				e.data = strings.TrimPrefix(line, "data: ")
			case line == "" && e.name != "":
				l.events <- e
				e = event{}
			}
		}
	}()
	return l
}

// until reads up to an event of a name that has the words, and returns it.
func (l *listener) until(name, words string) event {
	l.t.Helper()
	late := time.After(streamTimeout)
	for {
		select {
		case e, open := <-l.events:
			if !open {
				l.t.Fatalf("the stream ended before a %s with %q", name, words)
			}
			if e.name == name && strings.Contains(e.data, words) {
				return e
			}
		case <-late:
			l.t.Fatalf("no %s with %q within %s", name, words, streamTimeout)
		}
	}
}

// over waits for the stream's end.
func (l *listener) over() {
	l.t.Helper()
	late := time.After(streamTimeout)
	for {
		select {
		case _, open := <-l.events:
			if !open {
				return
			}
		case <-late:
			l.t.Fatalf("the stream goes on after %s", streamTimeout)
		}
	}
}

// decode reads an event's JSON.
func decode[T any](t *testing.T, e event) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(e.data), &v); err != nil {
		t.Fatalf("%s: %v", e.data, err)
	}
	return v
}

func ready(id int64, players int) page.Server {
	return page.Server{
		ID: id, Name: "arena", Game: "openarena", State: "Ready", Running: true, Players: &players, Capacity: 16,
		Address: "203.0.113.9", Ports: []page.Port{{Name: "game", Number: 7312, Protocol: "UDP"}}, RAM: "2 GB",
	}
}
