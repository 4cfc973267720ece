package resolvers

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Each service's status has it, and would be written each time it is another one.
func TestWhyAPodDoesNotAnswerIsTheSameForEachService(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cuts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}))
	defer cuts.Close()
	fails := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer fails.Close()
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{")) }))
	defer garbage.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for name, at := range map[string]net.Addr{
		"silent": silent.Addr(), "gone": gone.Addr(), "it resets connections": cuts.Listener.Addr(),
		"it fails": fails.Listener.Addr(), "it answers garbage": garbage.Listener.Addr(),
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := newObserver(t, &pod{})
			o.port = at.(*net.TCPAddr).Port
			var said []string
			for _, uid := range []string{"es-1", "es-2"} {
				v := o.View(t.Context(), "127.0.0.1", uid)
				if v.Err == nil {
					t.Fatal("it answers")
				}
				said = append(said, v.Err.Error())
				o.pods["127.0.0.1"].restUntil = time.Now()
			}
			if said[0] != said[1] || strings.Contains(said[0], "127.0.0.1") || strings.Contains(said[0], "es-1") {
				t.Errorf("it is said %q, want the same of both, without the question and the address", said)
			}
		})
	}
}
