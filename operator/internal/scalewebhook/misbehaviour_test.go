package scalewebhook

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
)

const hookHost = "hook.games.svc"

// webhook is a server, and the CA that it is asked with.
type webhook func(t *testing.T) (address string, ca []byte)

func plainly(handler http.HandlerFunc) webhook {
	return func(t *testing.T) (string, []byte) { return serve(t, handler), nil }
}

func rawly(handler func(*net.TCPConn)) webhook {
	return func(t *testing.T) (string, []byte) { return serveRaw(t, handler), nil }
}

func secured(host string, expires time.Duration) webhook {
	return func(t *testing.T) (string, []byte) { return serveTLS(t, host, time.Now().Add(expires), scaleTo(5)) }
}

func status(code int, body string) webhook {
	return plainly(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
}

func TestWhatAWebhookDoesWrongIsAnErrorAndNeverANumber(t *testing.T) {
	for name, test := range map[string]struct {
		webhook webhook
		// timeout is set where it is what the test is about.
		timeout time.Duration
		want    Reason
		message string
	}{
		"it takes too long": {
			webhook: plainly(hanging),
			timeout: 50 * time.Millisecond, want: Timeout, message: "didn't answer within 50ms",
		},
		"it hangs after its header": {
			webhook: rawly(func(c *net.TCPConn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"scale\"")
				untilGone(c)
			}),
			timeout: 50 * time.Millisecond, want: Timeout, message: "began to answer",
		},
		"it trickles": {
			webhook: rawly(func(c *net.TCPConn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				gone := make(chan struct{})
				go func() { defer close(gone); untilGone(c) }()
				for tick := time.NewTicker(5 * time.Millisecond); ; {
					select {
					case <-gone:
						return
					case <-tick.C:
						_, _ = io.WriteString(c, " ")
					}
				}
			}),
			timeout: 50 * time.Millisecond, want: Timeout, message: "began to answer",
		},
		"it hangs in the TLS handshake": {
			webhook: func(t *testing.T) (string, []byte) {
				_, ca := serveTLS(t, hookHost, time.Now().Add(time.Hour), scaleTo(5))
				return serveRaw(t, func(c *net.TCPConn) { untilGone(c) }), ca
			},
			timeout: 50 * time.Millisecond, want: Timeout,
		},
		"500": {webhook: status(500, "out of \x1b[31mcoffee\r\n"), want: BadStatus, message: `500 Internal Server Error instead of 200: "out of [31mcoffee"`},
		"500 with a long text": {
			webhook: status(500, strings.Repeat("x", 5000)), want: BadStatus, message: strings.Repeat("x", maxQuoted) + "…",
		},
		"302":   {webhook: status(302, ""), want: BadStatus, message: "redirects aren't followed"},
		"307":   {webhook: status(307, ""), want: BadStatus, message: "redirects aren't followed"},
		"204":   {webhook: status(204, ""), want: BadStatus},
		"404":   {webhook: status(404, ""), want: BadStatus, message: "answers 404 Not Found instead of 200"},
		"empty": {webhook: plainly(answering("")), want: BadAnswer, message: "empty"},
		"10 MB": {webhook: plainly(answering(strings.Repeat(" ", 10<<20))), want: BadAnswer, message: "larger than 64 KiB"},
		"10 MB, announced": {
			webhook: rawly(func(c *net.TCPConn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n")
				untilGone(c)
			}),
			want: BadAnswer, message: "larger than 64 KiB",
		},
		"a header without an end": {
			webhook: rawly(func(c *net.TCPConn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
				for {
					if _, err := fmt.Fprintf(c, "X: %s\r\n", strings.Repeat("x", 1000)); err != nil {
						return
					}
				}
			}),
			want: ConnectionLost,
		},
		"bad JSON":           {webhook: plainly(answering(`{"scale":tru}`)), want: BadAnswer, message: "no JSON"},
		"wrong types":        {webhook: plainly(answering(`{"scale":"yes","desired_replicas":5}`)), want: BadAnswer, message: "scale has the wrong type"},
		"negative":           {webhook: plainly(scaleTo(-1)), want: BadAnswer, message: "from 0 to 10000"},
		"huge":               {webhook: plainly(scaleTo(2000000000)), want: BadAnswer, message: "from 0 to 10000"},
		"TLS for a stranger": {webhook: secured("stranger.games.svc", time.Hour), want: TLS, message: "isn't for hook.games.svc"},
		"an expired certificate": {
			webhook: secured(hookHost, -time.Hour), want: TLS, message: "has expired",
		},
		"another authority": {
			webhook: func(t *testing.T) (string, []byte) {
				_, other := serveTLS(t, hookHost, time.Now().Add(time.Hour), scaleTo(5))
				address, _ := serveTLS(t, hookHost, time.Now().Add(time.Hour), scaleTo(5))
				return address, other
			},
			want: TLS, message: "caBundle",
		},
		"no TLS where it is expected": {
			webhook: func(t *testing.T) (string, []byte) {
				_, ca := serveTLS(t, hookHost, time.Now().Add(time.Hour), scaleTo(5))
				return serve(t, scaleTo(5)), ca
			},
			want: TLS, message: "doesn't speak TLS",
		},
		"TLS where none is expected": {
			webhook: func(t *testing.T) (string, []byte) {
				address, _ := serveTLS(t, hookHost, time.Now().Add(time.Hour), scaleTo(5))
				return address, nil
			},
			want: BadStatus, message: "HTTP request to an HTTPS server",
		},
		"it resets": {
			webhook: rawly(func(c *net.TCPConn) { _ = c.SetLinger(0) }),
			want:    ConnectionLost, message: "before the connection ended",
		},
		"it ends within the body": {
			webhook: rawly(func(c *net.TCPConn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{\"scale\"")
			}),
			want: ConnectionLost,
		},
		"it isn't HTTP": {
			webhook: rawly(func(c *net.TCPConn) { _, _ = io.WriteString(c, "SSH-2.0-\x1b[2J"+strings.Repeat("x", 3000)+"\r\n") }),
			want:    ConnectionLost,
		},
		"it changes protocols and hangs": {
			webhook: rawly(func(c *net.TCPConn) {
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
				untilGone(c)
			}),
			want: BadStatus, message: "101",
		},
		"nobody listens": {
			webhook: func(t *testing.T) (string, []byte) {
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				listener.Close()
				return listener.Addr().String(), nil
			},
			want: Refused, message: "refuses the connection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			address, ca := test.webhook(t)
			c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", address)}.lookup})
			timeout := test.timeout
			if timeout == 0 {
				timeout = 20 * time.Second
			}
			answer, err := c.Ask(t.Context(), Endpoint{Service: hook(), CABundle: ca, Timeout: timeout}, lobby("games"))
			if answer != (Answer{}) || ReasonOf(err) != test.want {
				t.Fatalf("the answer is %+v, the reason %s, want %s: %v", answer, ReasonOf(err), test.want, err)
			}
			message := err.Error()
			if !strings.Contains(message, test.message) {
				t.Errorf("the message is %q, want it to have %q", message, test.message)
			}
			if n := len([]rune(message)); n > maxMessage+1 || strings.ContainsFunc(message, unicode.IsControl) {
				t.Errorf("the message, of %d characters, isn't fit for people: %q", n, message)
			}
		})
	}
}

func TestAnAnswerIsWhatTheWebhookWants(t *testing.T) {
	for name, test := range map[string]struct {
		webhook webhook
		want    Answer
	}{
		"a number":     {plainly(scaleTo(7)), Answer{Scale: true, Replicas: 7}},
		"no change":    {plainly(answering(`{"scale":false,"desired_replicas":9}`)), Answer{}},
		"none at all":  {plainly(scaleTo(0)), Answer{Scale: true}},
		"64 KiB":       {plainly(answering(`{"scale":true,"desired_replicas":7}` + strings.Repeat(" ", maxBody-35))), Answer{Scale: true, Replicas: 7}},
		"one over TLS": {secured(hookHost, time.Hour), Answer{Scale: true, Replicas: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			address, ca := test.webhook(t)
			c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", address)}.lookup})
			answer, err := c.Ask(t.Context(), Endpoint{Service: hook(), CABundle: ca}, lobby("games"))
			if err != nil || answer != test.want {
				t.Errorf("the answer is %+v, %v; want %+v", answer, err, test.want)
			}
		})
	}
}

func TestAlternatingAnswersAreTakenOneByOne(t *testing.T) {
	asked := 0
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked%2 == 0 {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		scaleTo(asked)(w, r)
	})
	c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", address)}.lookup})
	for i := 1; i <= 12; i++ {
		answer, err := c.Ask(t.Context(), Endpoint{Service: hook()}, lobby("games"))
		want, reason := Answer{Scale: true, Replicas: int32(i)}, Reason("")
		if i%2 == 0 {
			want, reason = Answer{}, BadStatus
		}
		if answer != want || ReasonOf(err) != reason {
			t.Errorf("question %d: %+v, %v", i, answer, err)
		}
	}
}
