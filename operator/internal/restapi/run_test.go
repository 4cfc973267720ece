package restapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"dormouse.dev/dormouse/internal/httpserver"
)

// Whoever fills the API with connections that wait keeps nobody out; and one that is answered stays.
func TestConnectionsThatWaitMakeRoom(t *testing.T) {
	const most = 4
	metrics := NewMetrics(nil)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, end := make(chan struct{}), make(chan struct{})
	web := newWeb(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			accepted(r.Context())
			close(begun)
			<-end
		}
	}))
	ended := make(chan error, 1)
	go func() {
		ended <- web.Serve(httpserver.NewGate(ln, httpserver.Bounds{Connections: most, OfCaller: most, Unanswered: maxUnanswered, OfRequest: ofRequest}, metrics.closed, logr.Discard()))
	}()
	t.Cleanup(func() {
		_ = web.Close()
		<-ended
	})
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c net.Conn, path string) {
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(c net.Conn) error {
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		return r.Body.Close()
	}
	stream := dial()
	ask(stream, "/stream")
	<-begun
	for range 3 * most {
		c := dial()
		ask(c, "/healthcheck")
		if err := answered(c); err != nil {
			t.Fatalf("one more isn't answered: %v", err)
		}
	}
	close(end)
	if err := answered(stream); err != nil {
		t.Errorf("the one that was being answered was cut off: %v", err)
	}
	if n := testutil.ToFloat64(metrics.closed.WithLabelValues("too_many_of_caller")); n != 2*most+1 {
		t.Errorf("%v connections were closed to make room, want %d", n, 2*most+1)
	}
}

// pour answers with more than anybody reads, until that fails.
func pour(w http.ResponseWriter) {
	for piece := make([]byte, 64<<10); ; {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// Nor does whoever asks for what needs no token, and doesn't read it. Whose token was accepted, by the API
// or by its page, stays.
func TestCallersWhoDontReadMakeRoom(t *testing.T) {
	const most = 4
	for _, path := range []string{"/api/v1/server/7/events", "/page/live"} {
		t.Run(path, func(t *testing.T) {
			overNetworks(t, most, func(t *testing.T, serve func(http.Handler) *network) {
				w := newWorld(t, logr.Discard(), newSlowCluster(t))
				n := serve(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/large" {
						pour(answer)
						return
					}
					w.handler.ServeHTTP(answer, r)
				}))
				held, err := n.peer().ask(http.MethodGet, path, "good-alice", "")
				if err != nil {
					t.Fatal(err)
				}
				defer held.Body.Close()
				for range most {
					answer, err := n.peer().ask(http.MethodGet, "/large", "", "")
					if err != nil {
						t.Fatal(err)
					}
					defer answer.Body.Close()
					synctest.Wait()
				}
				n.peer().wants(http.StatusOK, "", http.MethodGet, "/openapi.json", "", "")
				if closed := testutil.ToFloat64(n.metrics.closed.WithLabelValues("too_many_of_caller")); closed != 2 {
					t.Errorf("%v connections were closed to make room, want 2", closed)
				}
				if _, err := io.Copy(io.Discard, held.Body); err != nil || held.StatusCode != http.StatusOK {
					t.Errorf("the one with a good token was answered %d, and cut off: %v", held.StatusCode, err)
				}
			})
		})
	}
}

// A header of many short lines takes seventeen times as much memory as on the wire, and needs no token.
func TestStrangersHeadersAreBoundedTogether(t *testing.T) {
	header := "GET / HTTP/1.1\r\nHost: x\r\n"
	for n := 0; len(header) < 30<<10; n++ {
		header += strconv.FormatInt(int64(n), 36) + "a:\n"
	}
	const strangers, stay = 20, 5
	metrics := NewMetrics(nil)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := newWeb(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ended := make(chan error, 1)
	go func() {
		ended <- web.Serve(httpserver.NewGate(ln, httpserver.Bounds{Connections: 100, OfCaller: 100, Unanswered: stay * int64(len(header))}, metrics.closed, logr.Discard()))
	}()
	t.Cleanup(func() {
		_ = web.Close()
		<-ended
	})
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for range strangers {
		_, _ = io.WriteString(dial(), header) // it may be closed meanwhile
	}
	closed := func() float64 { return testutil.ToFloat64(metrics.closed.WithLabelValues("too_much_unanswered")) }
	for deadline := time.Now().Add(30 * time.Second); closed() < strangers-stay; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v of %d connections are closed, of which %d may stay", closed(), strangers, stay)
		}
	}
	c := dial()
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("somebody else is answered %s", r.Status)
	}
}
