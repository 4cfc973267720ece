package local

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

// origins are the pages that may open a WebSocket besides those of this very address: libraries for games say that
// they are one, without its port.
var origins = []string{"localhost", "localhost:*", "127.0.0.1", "127.0.0.1:*", `\[::1\]`, `\[::1\]:*`}

// overWebSocket sends each line of a call's answer as a message where the caller asks for a WebSocket, as Agones
// does. Unreal's component watches in no other way.
func overWebSocket(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			next.ServeHTTP(w, r)
			return
		}
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: origins})
		if err != nil {
			return // and it has answered
		}
		defer func() { _ = conn.CloseNow() }()
		ctx := conn.CloseRead(r.Context())
		call := r.WithContext(ctx)
		call.Body = http.NoBody // it is the WebSocket's
		next.ServeHTTP(&messages{ctx: ctx, conn: conn, header: http.Header{}}, call)
	})
}

// messages is an answer that is sent as messages, one a line. A client that doesn't read holds it up, as it does
// over HTTP.
type messages struct {
	ctx    context.Context
	conn   *websocket.Conn
	header http.Header
	// begun is the beginning of the next line.
	begun []byte
}

// Header has headers that nobody reads.
func (m *messages) Header() http.Header { return m.header }

// WriteHeader does nothing: the status was sent before.
func (m *messages) WriteHeader(int) {}

// Flush does nothing: each line is sent at its end.
func (m *messages) Flush() {}

// Write sends the lines that end.
func (m *messages) Write(text []byte) (int, error) {
	m.begun = append(m.begun, text...)
	for {
		line, rest, ended := bytes.Cut(m.begun, []byte("\n"))
		if !ended {
			return len(text), nil
		}
		if err := m.conn.Write(m.ctx, websocket.MessageText, line); err != nil {
			return 0, err //nolint:wrapcheck // it says all
		}
		m.begun = rest
	}
}
