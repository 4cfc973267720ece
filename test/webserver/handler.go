package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// clientHeader is the header that tells from where the client came.
const clientHeader = "Client-Address"

func handler() http.Handler {
	rpc := grpc.NewServer(grpc.UnknownServiceHandler(talk))
	said := &turns{waiting: map[string]chan struct{}{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("POST /sum", sum)
	mux.HandleFunc("POST /echo", echo)
	mux.HandleFunc("GET /truncated", truncated)
	mux.HandleFunc("GET /events", said.events)
	mux.HandleFunc("POST /next", said.next)
	mux.HandleFunc("GET /socket", socket)
	var served, busy atomic.Int64
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE web_requests_total counter\nweb_requests_total %d\n", served.Load())
	})
	mux.HandleFunc("GET /busy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, busy.Load()) })
	own := []string{"/healthz", "/metrics", "/busy"} // asked by whoever watches the server
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(own, r.URL.Path) {
			served.Add(1)
			busy.Add(1)
			defer busy.Add(-1)
		}
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			rpc.ServeHTTP(w, r)
			return
		}
		w.Header().Set(clientHeader, r.RemoteAddr)
		mux.ServeHTTP(w, r)
	})
}

// sum answers the body's SHA-256.
func sum(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	if _, err := io.Copy(hash, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprint(w, hex.EncodeToString(hash.Sum(nil)))
}

// echo sends back each piece of the body as it comes.
func echo(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if err := control.EnableFullDuplex(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err := control.Flush(); err != nil {
		return
	}
	piece := make([]byte, 4096)
	for {
		n, err := r.Body.Read(piece)
		if _, failed := w.Write(piece[:n]); failed != nil || control.Flush() != nil || err != nil {
			return
		}
	}
}

// truncated breaks off in the middle of an answer.
func truncated(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, strings.Repeat("x", 100))
	control := http.NewResponseController(w)
	if control.Flush() != nil {
		return
	}
	if conn, _, err := control.Hijack(); err == nil {
		_ = conn.Close()
	}
}

// turns are the readers of events that wait for somebody to ask for the next one.
type turns struct {
	mu      sync.Mutex
	waiting map[string]chan struct{} // by the reader's name
}

// of is the channel of the reader that a request names.
func (t *turns) of(r *http.Request) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := r.URL.Query().Get("reader")
	if t.waiting[name] == nil {
		t.waiting[name] = make(chan struct{})
	}
	return t.waiting[name]
}

// events sends three server-sent events, the first at once and each other when it is asked for.
func (t *turns) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	next := t.of(r)
	for i := range 3 {
		if i > 0 {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprintf(w, "data: %d\n\n", i)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
	}
}

// next has a reader get its next event.
func (t *turns) next(w http.ResponseWriter, r *http.Request) {
	select {
	case t.of(r) <- struct{}{}:
		w.WriteHeader(http.StatusNoContent)
	case <-r.Context().Done():
	}
}

// socket sends back each message of a WebSocket.
func socket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

// talk answers each message of any method with the client's address and the message.
func talk(_ any, stream grpc.ServerStream) error {
	from, ok := peer.FromContext(stream.Context())
	if !ok {
		return errors.New("the client has no address")
	}
	for {
		var said wrapperspb.StringValue
		if err := stream.RecvMsg(&said); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(wrapperspb.String(from.Addr.String() + " " + said.GetValue())); err != nil {
			return err
		}
	}
}
