package local

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/sidecar/internal/game"
)

// watching serves a watch until stop ends that, and connects to it.
func watching(t *testing.T, watch http.HandlerFunc) (conn *websocket.Conn, stop context.CancelFunc) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	server := NewServer(game.New(game.Config{}, clock.RealClock{}), watch, nil)
	server.BaseContext = func(net.Listener) context.Context { return running }
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	conn, _, err = websocket.Dial(ctx, "ws://"+listener.Addr().String()+watchPath, nil) //nolint:bodyclose // the library closes it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn, stop
}

// However an answer is written, each of its lines is a message.
func TestALineIsAMessage(t *testing.T) {
	t.Parallel()
	conn, stop := watching(t, func(w http.ResponseWriter, r *http.Request) {
		for _, text := range []string{"one", "\n", "two\nth", "", "ree\n\n", "the rest"} {
			if _, err := io.WriteString(w, text); err != nil {
				t.Error(err)
			}
		}
		<-r.Context().Done()
	})
	defer stop()
	for _, want := range []string{"one", "two", "three", ""} {
		if _, got, err := conn.Read(t.Context()); err != nil || string(got) != want {
			t.Errorf("read %q, %v; want %q", got, err, want)
		}
	}
}

// A watch that nobody reads waits, and ends with its client or with the sidecar.
func TestAWatchThatIsNotReadEnds(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("x", 1<<20) + "\n"
	for name, end := range map[string]func(conn *websocket.Conn, stop context.CancelFunc){
		"with its client":  func(conn *websocket.Conn, _ context.CancelFunc) { _ = conn.CloseNow() },
		"with the sidecar": func(_ *websocket.Conn, stop context.CancelFunc) { stop() },
	} {
		began, ended := make(chan struct{}), make(chan struct{})
		conn, stop := watching(t, func(w http.ResponseWriter, _ *http.Request) {
			defer close(ended)
			close(began)
			for {
				if _, err := io.WriteString(w, line); err != nil {
					return
				}
			}
		})
		<-began
		end(conn, stop)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: it never ends", name)
		}
		stop()
	}
}
