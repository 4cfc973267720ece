package restapi

import (
	"context"
	"net"
	"net/http"
	"time"

	"dormouse.dev/dormouse/internal/httpserver"
)

// Bounds of the HTTP server.
const (
	headerTime = 10 * time.Second
	bodyTime   = 10 * time.Second
	idleTime   = 2 * time.Minute
	// answerTime bounds an answer, from its request's headers on: the body's time, the call's, and that
	// of a caller who reads slowly. Whoever never reads keeps a connection and a handler no longer,
	// since anybody may ask for what needs no token. A call that waits asks for more with mayTake, and
	// a stream sets a time for each write.
	answerTime = bodyTime + callTime + writeTime
	// maxConnections bounds those that are open, and maxOfCaller those of one address, which may be a
	// proxy's. For a further one the one is closed that has waited longest for its caller.
	maxConnections = 8192
	maxOfCaller    = 4096
	// maxHeader bounds a request's headers: a token may have 16 KiB.
	maxHeader = 32 << 10
	// maxUnanswered bounds what all callers together have sent that isn't answered yet, and who hasn't shown a good
	// token: a header of many short lines takes seventeen times as much memory.
	maxUnanswered = 4 << 20
	// ofRequest is what a request counts as besides, for its goroutine and its answer.
	ofRequest = 4 << 10
	// maxRequests bounds the requests of one connection at a time, of HTTP/2.
	maxRequests = 100
)

type (
	connKey    struct{}
	requestKey struct{}
)

// request is one that newWeb's server answers. It is the handler's alone.
type request struct {
	conn    net.Conn
	control *http.ResponseController
	// done ends that the connection stays; nil: it may make room.
	done func()
}

// accepted has the connection of a request that showed a good token stay until the request is answered.
// That of another one may make room for who comes: anybody can ask, and not read the answer.
func accepted(ctx context.Context) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok && r.done == nil {
		r.done = httpserver.Answering(r.conn)
	}
}

// mayTake has the answer to a request be in time for so long, and answerTime, from now on.
func mayTake(ctx context.Context, d time.Duration) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		_ = r.control.SetWriteDeadline(time.Now().Add(d + answerTime)) // not all writers have one
	}
}

// newWeb makes the HTTP server, for a listener that bounds connections.
func newWeb(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
				answered := httpserver.Asking(c)
				is := &request{conn: c, control: http.NewResponseController(w)}
				defer func() {
					answered()
					if is.done != nil {
						is.done()
					}
				}()
				r = r.WithContext(context.WithValue(r.Context(), requestKey{}, is))
			}
			handler.ServeHTTP(w, r)
			if r.ProtoMajor > 1 {
				_ = http.NewResponseController(w).Flush() // else it waits for its caller after this
			}
		}),
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, WriteTimeout: answerTime,
		// With HTTP/2 the time of an answer ends its stream, and only this a connection of which nothing is
		// read.
		HTTP2: &http.HTTP2Config{WriteByteTimeout: writeTime, MaxConcurrentStreams: maxRequests},
	}
}

// bounded bounds how long the body of a request may take: also one that nobody reads is read to its
// end before the answer is sent.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // not all writers have one
		}
		next.ServeHTTP(w, r)
	})
}
