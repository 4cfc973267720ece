package restapi

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilcache "k8s.io/apimachinery/pkg/util/cache"

	"dormouse.dev/dormouse/operator/internal/restapi/access"
)

func TestATokenIsSlowedDownAndOthersAreNot(t *testing.T) {
	g := &gate{rate: rate.Limit(1e-9), burst: 3, rates: utilcache.NewLRUExpireCache(10)}
	one, other := sha256.Sum256([]byte("one")), sha256.Sum256([]byte("other"))
	for n := range 5 {
		if got := g.allow(one); got != (n < 3) {
			t.Errorf("call %d is let in: %v", n+1, got)
		}
	}
	if !g.allow(other) {
		t.Error("another token is slowed down, too")
	}
}

func TestStreamsAreBounded(t *testing.T) {
	s := &streams{metrics: NewMetrics(nil), total: maxStreams, ofUser: maxStreamsOfUser, those: map[[32]byte]int{}}
	greedy, other := &access.User{Key: sha256.Sum256([]byte("greedy"))}, &access.User{Key: sha256.Sum256([]byte("other"))}
	var leave []func()
	for range maxStreamsOfUser {
		l, ok := s.admit(greedy)
		if !ok {
			t.Fatalf("stream %d is refused", len(leave)+1)
		}
		leave = append(leave, l)
	}
	if _, ok := s.admit(greedy); ok {
		t.Error("one more is let in")
	}
	if _, ok := s.admit(other); !ok {
		t.Error("another token's is refused")
	}
	leave[0]()
	if _, ok := s.admit(greedy); !ok {
		t.Error("none is let in after one has left")
	}
}

func TestAStreamSendsEventsAndItsEnd(t *testing.T) {
	lines := make(chan string, 2)
	lines <- "hello\nthere" // a new line in a value begins no event
	lines <- "event: end"
	close(lines)
	w := httptest.NewRecorder()
	stream(t.Context(), nil, w, "line", &content[string]{values: lines, ended: true})
	want := ": open\n\nevent: line\ndata: \"hello\\nthere\"\n\nevent: line\ndata: \"event: end\"\n\nevent: end\ndata: {}\n\n"
	if got := w.Body.String(); got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	if kind := w.Header().Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("it is of type %s", kind)
	}
}

func TestAStreamEndsWithTheProgramAndItsCaller(t *testing.T) {
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		stream(context.Background(), ending, httptest.NewRecorder(), "line", &content[string]{})
	}()
	close(ending)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	stream(gone, nil, httptest.NewRecorder(), "line", &content[string]{})
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

func TestALongLineIsCut(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader(strings.Repeat("a", 20)+"\r\nb"), 16)
	var got []string
	for {
		line, err := readLine(r)
		if err != nil {
			break
		}
		got = append(got, line)
	}
	if want := []string{strings.Repeat("a", 16), "aaaa", "b"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

func TestErrorsHaveTheRightStatus(t *testing.T) {
	kind := schema.GroupResource{Resource: "servers"}
	for name, c := range map[string]struct {
		err    error
		status int
		again  bool
	}{
		"the API server is slow":    {fmt.Errorf("x: %w", context.DeadlineExceeded), 503, true},
		"the API server is busy":    {apierrors.NewTooManyRequests("x", 1), 503, true},
		"the API server is away":    {apierrors.NewServiceUnavailable("x"), 503, true},
		"somebody else changed it":  {apierrors.NewConflict(kind, "x", errors.New("y")), 503, true},
		"a quota":                   {apierrors.NewForbidden(kind, "x", errors.New("exceeded quota")), 422, false},
		"an invalid object":         {apierrors.NewInvalid(schema.GroupKind{Kind: "Server"}, "x", nil), 422, false},
		"a caller who is gone":      {fmt.Errorf("wait for Allocation x: %w", context.Canceled), 503, true},
		"a caller gone from a call": {&url.Error{Op: "Get", URL: "https://x", Err: context.Canceled}, 503, true},
		"too many unknown tokens":   {access.ErrBusy, 429, true},
		"a mistake of the program":  {errors.New("x"), 500, false},
		"an error that was decided": {fail(http.StatusTeapot, "", "x"), http.StatusTeapot, false},
	} {
		var log strings.Builder
		got := answerTo(logr.NewContext(t.Context(), funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{})), c.err)
		f := &Failure{}
		if !errors.As(got, &f) || f.status != c.status {
			t.Errorf("%s: %#v, want %d", name, got, c.status)
		}
		if errors.Is(c.err, context.Canceled) && log.Len() > 0 {
			t.Errorf("%s: the log has %s", name, log.String())
		}
		var h huma.HeadersError
		if again := errors.As(got, &h) && h.GetHeaders().Get("Retry-After") != ""; again != c.again {
			t.Errorf("%s: told to come again: %v", name, again)
		}
	}
}

// A caller who hangs up in the middle of a body has made a mistake, and not the API.
func TestABodyThatBreaksOffIsNoFaultOfOurs(t *testing.T) {
	w := newWorld(t, logr.Discard(), nil)
	body := io.MultiReader(strings.NewReader(`{"target":`), iotest.ErrReader(io.ErrUnexpectedEOF))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/allocate", body)
	r.Header.Set("Authorization", "Bearer good-alice")
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	if text := answer.Body.String(); answer.Code != http.StatusBadRequest || !strings.Contains(text, `"invalid"`) || !strings.Contains(text, "send it whole") {
		t.Errorf("answered %d %s", answer.Code, text)
	}
}

// A failure of the API server's own may last, so it is told in its words, and whoever runs it finds it
// in the log. Who isn't let in yet reads none of that.
func TestAFailureOfTheAPIServersIsTold(t *testing.T) {
	full := apierrors.NewInternalError(errors.New("failed to allocate a nodePort: range is full" + strings.Repeat(".", 10000)))
	for name, c := range map[string]struct {
		err   error
		words bool
	}{
		"a full range":      {fmt.Errorf("apply Service x: %w", full), true},
		"a proxy's page":    {apierrors.NewGenericServerResponse(http.StatusBadGateway, "GET", schema.GroupResource{}, "x", "range is full", 0, true), true},
		"who isn't let in":  {fmt.Errorf("have a token reviewed: %w: %w", access.ErrUnasked, full), false},
		"no answer in time": {fmt.Errorf("range is full: %w", context.DeadlineExceeded), false},
	} {
		var log strings.Builder
		ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}))
		f := &Failure{}
		if !errors.As(answerTo(ctx, c.err), &f) || f.status != http.StatusServiceUnavailable || len(f.Detail.Message) > 600 {
			t.Errorf("%s: answered %+v", name, f)
		}
		if words := strings.Contains(f.Detail.Message, "range is full"); words != c.words {
			t.Errorf("%s: the caller is told that: %t; in %s", name, words, f.Detail.Message)
		}
		if !strings.Contains(log.String(), "range is full") {
			t.Errorf("%s: the log has %q", name, log.String())
		}
		log.Reset()
		gone, leave := context.WithCancel(ctx)
		leave()
		if _ = answerTo(gone, c.err); log.Len() > 0 {
			t.Errorf("%s: of a caller who is gone the log has %q", name, log.String())
		}
	}
}

func TestOnlyBearerTokensCount(t *testing.T) {
	for header, want := range map[string]string{"Bearer a.b": "a.b", "bearer  a": "a", "Basic a": "", "": "", "Bearer": "", "a": ""} {
		if got := bearer(header); got != want {
			t.Errorf("%q has the token %q, want %q", header, got, want)
		}
	}
}
