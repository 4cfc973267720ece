package restapi

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Whoever doesn't read what everybody may ask for has a handler for a minute, and not longer: neither with
// one stream of HTTP/2 nor with a whole connection.
func TestAnAnswerThatNobodyReadsEnds(t *testing.T) {
	for name, c := range map[string]struct {
		shut bool
		most time.Duration
	}{
		"an answer that isn't read":    {false, answerTime},
		"a connection that isn't read": {true, answerTime + writeTime},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, 1, func(t *testing.T, serve func(http.Handler) *network) {
				took := make(chan time.Duration, 1)
				p := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					began := time.Now()
					pour(w)
					took <- time.Since(began)
				})).peer()
				answer, err := p.ask(http.MethodGet, "/large", "", "")
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				if c.shut {
					close(p.conn.shut)
				}
				if is := <-took; is > c.most {
					t.Errorf("its handler ended after %s, want %s", is, c.most)
				}
			})
		})
	}
}

// A call that waits is answered however long it may wait, and so is the next one on its connection.
func TestAWaitIsAnswered(t *testing.T) {
	overNetworks(t, 1, func(t *testing.T, serve func(http.Handler) *network) {
		p := serve(newWorld(t, logr.Discard(), nil).handler).peer()
		began := time.Now()
		p.wants(http.StatusServiceUnavailable, `"no_server"`, http.MethodPost, "/api/v1/allocate?wait=10m", "good-alice", `{"target":"nobodys"}`)
		if took := time.Since(began); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("it was answered after %s", took)
		}
		p.wants(http.StatusOK, "", http.MethodGet, "/api/v1/server/7", "good-alice", "")
	})
}

// slowCluster is a cluster without events, in which a game's log begins after two minutes. It is there as
// long as somebody follows it.
type slowCluster struct{}

func newSlowCluster(t *testing.T) kubernetes.Interface {
	t.Helper()
	cluster, err := kubernetes.NewForConfig(&rest.Config{Host: "http://cluster", Transport: slowCluster{}})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// RoundTrip implements http.RoundTripper.
func (slowCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	from, to := io.Pipe()
	go func() {
		if strings.HasSuffix(r.URL.Path, "/log") {
			_, _ = io.WriteString(to, "hello\n")
		}
		<-r.Context().Done()
		_ = to.CloseWithError(r.Context().Err())
	}()
	switch {
	case strings.HasSuffix(r.URL.Path, "/log"):
		select {
		case <-time.After(2 * time.Minute):
		case <-r.Context().Done():
			_ = from.Close()
			return nil, r.Context().Err()
		}
		answer.Body = from
	case r.URL.Query().Get("watch") != "":
		answer.Body = from
	default:
		_ = from.Close()
		answer.Body = io.NopCloser(strings.NewReader(`{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`))
	}
	return answer, nil
}

// idle are streams on which nothing happens but a log's first line, and how long they last.
var idle = map[string]struct {
	words string
	lasts time.Duration
}{
	"/page/live":              {"event: list", 5 * time.Minute},
	"/page/servers/7/live":    {"hello", 5 * time.Minute},
	"/api/v1/server/7/events": {": still here", streamTime},
	"/api/v1/server/7/logs":   {"hello", streamTime},
}

// Streams last as long as they may, whatever the protocol, and the next request on their connection is
// answered.
func TestIdleStreamsLast(t *testing.T) {
	for path, c := range idle {
		t.Run(path, func(t *testing.T) {
			overNetworks(t, 1, func(t *testing.T, serve func(http.Handler) *network) {
				p := serve(newWorld(t, logr.Discard(), newSlowCluster(t)).handler).peer()
				began := time.Now()
				p.wants(http.StatusOK, c.words, http.MethodGet, path, "good-alice", "")
				if took := time.Since(began); took != c.lasts {
					t.Errorf("it ended after %s, want %s", took, c.lasts)
				}
				<-time.After(time.Minute)
				p.wants(http.StatusOK, "", http.MethodGet, "/api/v1/server/7", "good-alice", "")
			})
		})
	}
}

// A stream whose caller reads no more ends as well, though only its end is left to be written, and so does
// its connection.
func TestAStreamThatNobodyReadsEnds(t *testing.T) {
	for path, c := range idle {
		t.Run(path, func(t *testing.T) {
			overNetworks(t, 1, func(t *testing.T, serve func(http.Handler) *network) {
				p := serve(newWorld(t, logr.Discard(), newSlowCluster(t)).handler).peer()
				end := time.After(c.lasts + time.Minute)
				lastBeat := time.After(c.lasts - beat - time.Second)
				answer, err := p.ask(http.MethodGet, path, "good-alice", "") //nolint:bodyclose // whoever reads it closes it
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					defer answer.Body.Close()
					_, _ = io.Copy(io.Discard, answer.Body)
				}()
				<-lastBeat
				close(p.conn.shut)
				<-end
				_ = p.conn.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := p.conn.Write(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("its connection is open: %v", err)
				}
			})
		})
	}
}
