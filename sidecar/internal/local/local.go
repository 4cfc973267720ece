// Package local answers a game's calls on its own machine over HTTP: a few paths that need no
// SDK, and the Agones SDK's REST calls.
//
// Whoever can call it can act for the game. It therefore answers only on loopback, and only
// under a host name of loopback. A page in a browser whose own host name resolves to 127.0.0.1
// gets nothing.
package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/sdk"
)

// MaxBodyBytes bounds the body of a call that isn't the SDK's.
const MaxBodyBytes = 64 << 10

// Times of a call; a watch may take longer.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
)

// watchPath is the SDK's watch, a call without an end.
const watchPath = "/watch/gameserver"

type handlers struct{ game *game.Game }

// NewServer makes the server for a game, with the SDK's REST calls. recovered is called with
// panics, which cost one call; it may be nil.
func NewServer(g *game.Game, rest http.Handler, recovered func(value any, stack []byte)) *http.Server {
	h := handlers{g}
	mux := http.NewServeMux()
	for path, methods := range map[string]map[string]http.HandlerFunc{
		"/allow_delete": {http.MethodGet: h.allowDelete, http.MethodPost: h.setAllowDelete},
		"/shutdown":     {http.MethodGet: h.shutdown, http.MethodPost: h.setShutdown},
		"/players":      {http.MethodGet: h.players, http.MethodPut: h.setPlayers},
		"/health":       {http.MethodGet: h.health, http.MethodPost: h.ping},
	} {
		mux.HandleFunc(path, byMethod(methods))
	}
	rest = bounded(rest)
	mux.Handle("/", rest)
	mux.Handle(watchPath, lasting(overWebSocket(rest)))
	return &http.Server{
		Handler:           recovering(loopbackOnly(mux), recovered),
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: 16 << 10,
	}
}

// byMethod answers 405 for methods that a path doesn't take. HEAD is GET.
func byMethod(methods map[string]http.HandlerFunc) http.HandlerFunc {
	allowed := strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		handler, ok := methods[method]
		if !ok {
			w.Header().Set("Allow", allowed)
			refuse(w, http.StatusMethodNotAllowed, "this path takes "+allowed+" only")
			return
		}
		handler(w, r)
	}
}

// bounded refuses bodies that are too large for the SDK's calls.
func bounded(next http.Handler) http.Handler {
	next = http.MaxBytesHandler(next, sdk.MaxMessageBytes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > sdk.MaxMessageBytes {
			refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", sdk.MaxMessageBytes))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// lasting lifts a call's time limit.
func lasting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})); err != nil {
			refuse(w, http.StatusInternalServerError, "this connection can't last")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopbackOnly refuses calls under a host name that isn't loopback's.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			refuse(w, http.StatusForbidden, "call this under localhost, 127.0.0.1 or [::1]")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && address.Unmap().IsLoopback()
}

// recovering limits a panic to one call.
func recovering(next http.Handler, recovered func(value any, stack []byte)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			value := recover()
			if value == nil {
				return
			}
			// This one is net/http's own way to end a connection.
			if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(value) //nolint:forbidigo // it goes on where it comes from
			}
			if recovered != nil {
				recovered(value, debug.Stack())
			}
			refuse(w, http.StatusInternalServerError, "something went wrong here; the log tells what")
		}()
		next.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may be gone.
	_ = json.NewEncoder(w).Encode(document)
}

func refuse(w http.ResponseWriter, status int, sentence string) {
	answer(w, status, informerapi.ErrorResponse{Error: sentence})
}

// read reads a call's body, which must be JSON with only the fields of into. An empty body is
// {}. On failure it answers the call and returns false.
func read(w http.ResponseWriter, r *http.Request, into any, example string) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", MaxBodyBytes))
		return false
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the body could not be read")
		return false
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return true
	}
	strict, err := kjson.UnmarshalStrict(body, into)
	if len(strict) > 0 {
		err = strict[0]
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		err = fmt.Errorf("%s can't be a %s", wrong.Field, wrong.Value)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the body must be like %s: %v", example, err))
		return false
	}
	return true
}

// statuses maps the kinds of errors to HTTP's.
var statuses = map[game.Kind]int{
	game.Invalid:       http.StatusBadRequest,
	game.OutOfRange:    http.StatusBadRequest,
	game.NotFound:      http.StatusNotFound,
	game.AlreadyExists: http.StatusConflict,
	game.TooLate:       http.StatusConflict,
	game.Unavailable:   http.StatusServiceUnavailable,
}

func failed(w http.ResponseWriter, err error) {
	status, ok := statuses[game.KindOf(err)]
	if !ok {
		status = http.StatusInternalServerError
	}
	refuse(w, status, err.Error())
}
