package restapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// breaking is an API server's answer whose connection breaks.
func breaking(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// newCluster is a client of an API server that answers so.
func newCluster(t *testing.T, answer http.HandlerFunc) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	cluster, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// Only a game that has ended ends its log: whoever follows it then needs not come again.
func TestABrokenLogIsNoEndOfItsGame(t *testing.T) {
	for name, c := range map[string]struct {
		after func(http.ResponseWriter)
		end   string
	}{
		"the game ends":         {func(http.ResponseWriter) {}, "event: end\ndata: {}\n\n"},
		"the connection breaks": {breaking, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, logr.Discard(), newCluster(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/namespaces/servers/pods/server-7-0/log" {
					t.Errorf("asked for %s", r.URL)
				}
				_, _ = io.WriteString(w, "hello\n")
				c.after(w)
			}))
			answer := w.call(http.MethodGet, "/api/v1/server/7/logs", "good-alice", somewhere, "")
			w.want(answer, http.StatusOK)
			if got, want := answer.Body.String(), ": open\n\nevent: line\ndata: \"hello\"\n\n"+c.end; got != want {
				t.Errorf("sent %q, want %q", got, want)
			}
		})
	}
}

// A log whose follower is gone, or whose time is over, has not ended either.
func TestALogThatIsGivenUpIsNoEndOfItsGame(t *testing.T) {
	w := newWorld(t, logr.Discard(), newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	lines, err := w.people.streams.logs(ctx, "server-7-0", "game")
	if err != nil {
		t.Fatal(err)
	}
	if line := <-lines.values; line != "hello" {
		t.Errorf("the first line is %q", line)
	}
	leave()
	for line := range lines.values {
		t.Errorf("one more line: %q", line)
	}
	if lines.ended {
		t.Error("the game has ended")
	}
}

// What is said of a server has no end: a watch that does is begun anew.
func TestEventsHaveNoEnd(t *testing.T) {
	for name, after := range map[string]func(http.ResponseWriter){"the watch ends": func(http.ResponseWriter) {}, "the connection breaks": breaking} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, logr.Discard(), newCluster(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Query().Get("watch") == "" {
					_, _ = fmt.Fprint(w, `{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"reason":"Woken"}]}`)
					return
				}
				after(w)
			}))
			answer := w.call(http.MethodGet, "/api/v1/server/7/events", "good-alice", somewhere, "")
			w.want(answer, http.StatusOK)
			if got := answer.Body.String(); !strings.Contains(got, `"reason":"Woken"`) || strings.Contains(got, "event: end") {
				t.Errorf("sent %q", got)
			}
		})
	}
}
