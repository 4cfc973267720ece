package relay

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

const (
	asks = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	// unasked is what the client would take for the answer of the host that it asks next.
	unasked  = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen"
	switches = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
)

// hears reads all that a client hears, which is this, before its connection is reset.
func (r relayed) hears(t *testing.T, want string) {
	t.Helper()
	got, err := io.ReadAll(r.client)
	if string(got) != want {
		t.Errorf("the client hears %d bytes that end with %.60q, want %d that end with %.60q", len(got), last(string(got)), len(want), last(want))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client's connection ends with %v, want a reset", err)
	}
}

func last(s string) string { return s[max(0, len(s)-60):] }

// isReset makes sure that the relay ends by its server, whose connection is reset.
func (r relayed) isReset(t *testing.T, kept *conn.Budget, used int64) {
	t.Helper()
	if e := r.end(t); e.Why != ByServer || !errors.Is(e.Err, errUnasked) {
		t.Errorf("it ended with %+v, want by its server", e)
	}
	if n := kept.Used(); n != used {
		t.Errorf("%d bytes are kept in the end, want %d", n, used)
	}
	if _, err := io.Copy(io.Discard, r.server); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server's connection ends with %v, want a reset", err)
	}
}

func TestWhatNobodyAskedForReachesNoClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, then string
	}{
		"a second answer":                        {answer, unasked},
		"a broken second answer":                 {answer, "HTTP/1.1 2"},
		"another protocol that nobody asked for": {"", switches + unasked},
		"an answer of two lengths":               {"", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok" + unasked},
	} {
		for _, memory := range []bool{true, false} {
			for _, together := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, with memory %t, together %t", name, memory, together), func(t *testing.T) {
					t.Parallel()
					kept := conn.NewBudget(1 << 20)
					if !memory {
						kept.Force(1 << 20)
					}
					used := kept.Used()
					r := guarded(t, Options{Kept: kept})
					r.say(t, asks)
					if _, err := io.ReadFull(r.server, make([]byte, len(asks))); err != nil {
						t.Fatal(err)
					}
					said := c.first + c.then
					if !together {
						if _, err := io.WriteString(r.server, c.first); err != nil {
							t.Fatal(err)
						}
						if _, err := io.ReadFull(r.client, make([]byte, len(c.first))); err != nil {
							t.Fatal(err)
						}
						said = c.then
					}
					if _, err := io.WriteString(r.server, said); err != nil {
						t.Fatal(err)
					}
					r.hears(t, strings.TrimSuffix(said, c.then))
					r.isReset(t, kept, used)
				})
			}
		}
	}
}

// Whoever has no room for its answer still gets the whole of it, and nothing more.
func TestAnAnswerIsWholeThoughTheServerSaysMore(t *testing.T) {
	t.Parallel()
	for _, marked := range []bool{false, true} {
		for _, memory := range []bool{true, false} {
			for _, body := range []int{20 << 10, conn.BufferBytes, 40 << 10, 1<<20 + 1} {
				t.Run(fmt.Sprintf("%d bytes, with memory %t, marked %t", body, memory, marked), func(t *testing.T) {
					t.Parallel()
					client, inside := connected(t)
					outside, server := connected(t)
					_ = server.SetWriteBuffer(2 << 20)
					_ = outside.SetReadBuffer(2 << 20)
					if body < 1<<20 { // more would take long
						_ = inside.SetWriteBuffer(4 << 10)
						_ = client.SetReadBuffer(4 << 10)
					}
					kept := conn.NewBudget(1 << 20)
					if !memory {
						kept.Force(1 << 20)
					}
					used := kept.Used()
					o := Options{Kept: kept, Exchange: http1.NewExchange()}
					o.Exchange.Only(func(host string) bool { return host == "a" })
					o.Exchange.Read(http1.Client, []byte(asks))
					o.Exchange.Passed(http1.Client)
					whole := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", body, strings.Repeat("burrow..", body/8+1)[:body])
					want := whole
					if marked {
						o.Mark = &http1.Mark{}
						want = strings.Replace(whole, "\r\n", "\r\nCold-Start: true\r\n", 1)
					}
					go func() { _, _ = io.WriteString(server, whole+strings.Repeat(unasked, 2000)) }()
					waitReadable(t, outside)
					r := relayed{client, server, make(chan Ended, 1)}
					go func() { r.ended <- Run(t.Context(), inside, outside, o, nil) }()
					r.hears(t, want)
					r.isReset(t, kept, used)
				})
			}
		}
	}
}

// A server that takes nothing in doesn't keep its client from being let go.
func TestAServerThatReadsNothingDelaysNoEnd(t *testing.T) {
	t.Parallel()
	kept := conn.NewBudget(1 << 20)
	r := cramped(t, Options{Kept: kept})
	const head, size = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n", 8 << 20
	said := make(chan error, 1)
	go func() {
		_, err := io.WriteString(r.client, head+strings.Repeat("x", size))
		said <- err
	}()
	if _, err := io.ReadFull(r.server, make([]byte, len(head))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(r.server, answer+unasked); err != nil {
		t.Fatal(err)
	}
	// The reset is either the reader's or the writer's to see.
	got, err := io.ReadAll(r.client)
	if err = errors.Join(err, <-said); string(got) != answer || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client hears %.80q, and then %v", got, err)
	}
	r.isReset(t, kept, 0)
}

// An answer may go on until the connection ends, and all the while its request, too. The
// request's end is found in any case.
func TestAnAnswerThatEndsWithTheConnectionIsPassed(t *testing.T) {
	t.Parallel()
	for _, memory := range []bool{true, false} {
		t.Run(fmt.Sprintf("with memory %t", memory), func(t *testing.T) {
			t.Parallel()
			const size = 2 << 20
			kept := conn.NewBudget(1 << 20)
			if !memory {
				kept.Force(1 << 20)
			}
			r := guarded(t, Options{Kept: kept})
			head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
			r.say(t, head)
			if _, err := io.ReadFull(r.server, make([]byte, len(head))); err != nil {
				t.Fatal(err)
			}
			const begun, more = "HTTP/1.0 200 OK\r\n\r\n", " and more"
			if _, err := io.WriteString(r.server, begun); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(r.client, make([]byte, len(begun))); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = io.WriteString(r.client, strings.Repeat("x", size)+"GET /stolen HTTP/1.1\r\nHost: b\r\n\r\n")
			}()
			got := make([]byte, size)
			if n, err := io.ReadFull(r.server, got); err != nil || strings.Trim(string(got), "x") != "" {
				t.Fatalf("the server got %d of %d bytes, %v", n, size, err)
			}
			if _, err := io.WriteString(r.server, more); err != nil {
				t.Fatal(err)
			}
			if got := make([]byte, len(more)); true {
				if _, err := io.ReadFull(r.client, got); err != nil || string(got) != more {
					t.Fatalf("the client got %q, %v", got, err)
				}
			}
			if err := r.server.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if rest, _ := io.ReadAll(r.server); len(rest) > 0 {
				t.Errorf("the server got %q of another's", rest)
			}
			if rest, _ := io.ReadAll(r.client); len(rest) > 0 {
				t.Errorf("the client got %q more", rest)
			}
			r.end(t)
		})
	}
}
