package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// FuzzParseRequest compares what is taken for a plain request with what net/http
// makes of it.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(healthz))
	f.Add([]byte(recorded(f, "curl_probe") + "more"))
	f.Add([]byte("POST /status HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("POST /status HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
	f.Add([]byte("HEAD /healthz HTTP/1.0\r\nConnection: close\r\n\r\n"))
	f.Add([]byte("GET /healthz HTTP/1.1\r\nA: b\n\n"))
	f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	f.Add([]byte(recorded(f, "tls_hello")))
	f.Fuzz(func(t *testing.T, head []byte) {
		before := bytes.Clone(head)
		v := Protocol{}.Inspect(head, asleep())
		Protocol{}.Refusal(proto.TimedOut, head, asleep())
		if !bytes.Equal(before, head) {
			t.Fatal("the head was changed")
		}
		if v.Used > len(head) || (v.Used > 0) != (v.Action == proto.Answer) || v.Action == proto.Refuse {
			t.Fatalf("action %d after %d of %d bytes", v.Action, v.Used, len(head))
		}
		r, size, err := ParseRequest(head)
		if err != nil {
			if len(head) >= proto.MaxHead && v.Action == proto.NeedMore {
				t.Fatal("it wants more than there may be")
			}
			return
		}
		// Each beginning of it might become this one.
		for i := 1; i < size; i += 1 + size/64 {
			if _, _, err := ParseRequest(head[:i]); !errors.Is(err, errShort) {
				t.Fatalf("%q: %v", head[:i], err)
			}
		}
		rest := bytes.NewReader(head)
		buffered := bufio.NewReader(rest)
		want, err := http.ReadRequest(buffered)
		if err != nil {
			return // it knows what hosts and targets are, too
		}
		if string(r.Method) != want.Method || string(r.Target) != want.RequestURI || r.Minor != want.ProtoMinor {
			t.Fatalf("%q %q %d, want %q %q %d", r.Method, r.Target, r.Minor, want.Method, want.RequestURI, want.ProtoMinor)
		}
		if left := buffered.Buffered() + rest.Len(); size != len(head)-left {
			t.Fatalf("the head has %d bytes, want %d", size, len(head)-left)
		}
		if v.Action == proto.Answer && want.Body != http.NoBody {
			t.Fatal("a request with a body is taken for one without")
		}
		if !r.plain(r.Minor) {
			return
		}
		chunked := len(want.TransferEncoding) == 1 && want.TransferEncoding[0] == "chunked"
		if r.chunked != chunked || !chunked && r.length != want.ContentLength {
			t.Fatalf("chunked %v, length %d; want %v, %d", r.chunked, r.length, chunked, want.ContentLength)
		}
	})
}

// FuzzExchange compares when a connection is taken for idle with what net/http
// makes of its bytes, and what comes at once with what comes in pieces.
func FuzzExchange(f *testing.F) {
	for _, c := range exchanges {
		f.Add([]byte(c.requests), []byte(c.responses), byte(7))
	}
	f.Fuzz(func(t *testing.T, requests, responses []byte, piece byte) {
		x, pieces := NewExchange(), NewExchange()
		var heads, others [2]int
		for i, watched := range []*Exchange{x, pieces} {
			watched.Watch(func(head []byte) bool {
				heads[i]++
				if _, size, err := ParseRequest(head); err == nil && size != len(head) {
					t.Fatalf("%q is taken for a head, and %d bytes of it are", head, size)
				}
				return true
			}, func() { others[i]++ })
		}
		x.feed(Client, requests, len(requests)+1)
		x.feed(Server, responses, len(responses)+1)
		pieces.feed(Client, requests, int(piece)+1)
		pieces.feed(Server, responses, int(piece)+1)
		for _, side := range []Side{Client, Server} {
			if cap(pieces.streams[side].pending) > 2*maxLine {
				t.Fatalf("%d bytes are kept", cap(pieces.streams[side].pending))
			}
		}
		// A long line in pieces is given up sometimes, and never read otherwise.
		if x.Lost() && !pieces.Lost() || x.settled() != pieces.settled() && !pieces.Lost() {
			t.Fatalf("at once lost %v, settled %v; in pieces %v, %v", x.Lost(), x.settled(), pieces.Lost(), pieces.settled())
		}
		if !pieces.Lost() && heads[0] != heads[1] || max(others[0], others[1]) > 1 {
			t.Fatalf("at once %d heads are watched, in pieces %d; others are told %d and %d times", heads[0], heads[1], others[0], others[1])
		}
		if !x.settled() {
			return
		}
		up, down := bufio.NewReader(bytes.NewReader(requests)), bufio.NewReader(bytes.NewReader(responses))
		for {
			if _, err := up.Peek(1); err != nil {
				break
			}
			request, err := http.ReadRequest(up)
			if err != nil {
				return // it knows what hosts and targets are, too
			}
			if _, err := io.Copy(io.Discard, request.Body); err != nil {
				t.Fatalf("idle, though a request's body is not over: %v", err)
			}
			if !readResponse(t, down, request) {
				return
			}
		}
		if left, _ := io.ReadAll(down); len(left) > 0 {
			t.Fatalf("idle, though %q is left", left)
		}
	})
}

// FuzzAnswers compares what is passed of a server whose client may ask another one next with
// what net/http makes of it: never more answers than requests, nor another protocol unasked.
func FuzzAnswers(f *testing.F) {
	for _, c := range exchanges {
		f.Add(c.requests, c.responses, byte(7))
		f.Add(c.requests, c.responses+noBody, byte(255))
	}
	f.Add(upgrade+get, switches+noBody, byte(255))
	f.Add(get+upgrade, switches+noBody, byte(255))
	f.Fuzz(func(t *testing.T, requests, responses string, piece byte) {
		x := NewExchange()
		x.Only(func(string) bool { return true })
		up := bufio.NewReader(strings.NewReader(x.pass(Client, requests, int(piece)+1)))
		down := bufio.NewReader(strings.NewReader(x.pass(Server, responses, int(piece)+1)))
		for {
			request, err := http.ReadRequest(up)
			if err != nil && !errors.Is(err, io.EOF) {
				return // it knows what hosts and targets are, too
			}
			if err != nil {
				break
			}
			for interim := true; interim; {
				response, err := http.ReadResponse(down, request)
				if err != nil {
					return
				}
				interim = response.StatusCode < 200 && response.StatusCode != http.StatusSwitchingProtocols
				_, err = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode == http.StatusSwitchingProtocols {
					if request.Header.Get("Upgrade") == "" {
						t.Fatal("another protocol is passed that nobody asked for")
					}
					return
				}
				if err != nil || response.Close {
					return // the client goes on with another connection
				}
			}
			if _, err := io.Copy(io.Discard, request.Body); err != nil {
				break
			}
		}
		if response, err := http.ReadResponse(down, nil); err == nil {
			_ = response.Body.Close()
			t.Fatal("an answer is passed that nobody asked for")
		}
	})
}

// readResponse reads a request's whole answer; false: net/http doesn't like it for
// another reason than where it ends.
func readResponse(t *testing.T, r *bufio.Reader, request *http.Request) bool {
	for {
		if _, err := r.Peek(1); err != nil {
			t.Fatal("idle, though an answer is to come")
		}
		response, err := http.ReadResponse(r, request)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("idle in the middle of an answer: %v", err)
		}
		if err != nil {
			return false
		}
		if response.StatusCode < 200 {
			_ = response.Body.Close()
			continue
		}
		bodiless := request.Method == http.MethodHead || response.StatusCode == 204 || response.StatusCode == 304
		if !bodiless && response.ContentLength < 0 && len(response.TransferEncoding) == 0 {
			t.Fatal("idle, though the answer ends with the connection")
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatalf("idle, though the answer's body is not over: %v", err)
		}
		return true
	}
}
