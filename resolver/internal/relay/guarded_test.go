package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// guarded is a relay whose client may ask for the host a alone, and has asked once.
func guarded(t *testing.T, o Options) relayed {
	t.Helper()
	o.Exchange = http1.NewExchange()
	o.Exchange.Only(func(host string) bool { return host == "a" })
	r := relay(t, t.Context(), o)
	r.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	return r
}

// ask has the client say a request, in one piece or several, and the server answer it.
func (r relayed) ask(t *testing.T, pieces ...string) {
	t.Helper()
	r.say(t, pieces...)
	r.serve(t, strings.Join(pieces, ""))
}

func (r relayed) say(t *testing.T, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		if _, err := io.WriteString(r.client, piece); err != nil {
			t.Fatal(err)
		}
	}
}

// serve has the server take in a request, and answer it.
func (r relayed) serve(t *testing.T, request string) {
	t.Helper()
	got := make([]byte, len(request))
	if _, err := io.ReadFull(r.server, got); err != nil || string(got) != request {
		t.Fatalf("the server got %.80q, %v, want %.80q", got, err, request)
	}
	if _, err := io.WriteString(r.server, answer); err != nil {
		t.Fatal(err)
	}
	got = make([]byte, len(answer))
	if _, err := io.ReadFull(r.client, got); err != nil || string(got) != answer {
		t.Fatalf("the client got %q, %v", got, err)
	}
}

// A client that begins a request and doesn't go on is let go, however slowly it says the
// rest; not before it has what it asked for before.
func TestARequestsHeadComesInTime(t *testing.T) {
	t.Parallel()
	kept := conn.NewBudget(1 << 20)
	r := guarded(t, Options{Head: 2 * time.Second, Kept: kept})
	for range 3 { // each request has its own time
		<-time.After(800 * time.Millisecond)
		r.ask(t, "GET /slow HT", "TP/1.1\r\nHost: a\r\n\r\n")
	}
	r.say(t, "GET /waits HTTP/1.1\r\nHost: a\r\n\r\n", "GET /dawdles HT")
	ended := time.After(4 * time.Second)
	for done := false; !done; {
		select {
		case e := <-r.ended:
			t.Fatalf("it ended with %+v before the first request was answered", e)
		case <-time.After(200 * time.Millisecond):
			_, _ = io.WriteString(r.client, "T")
		case <-ended:
			done = true
		}
	}
	r.serve(t, "GET /waits HTTP/1.1\r\nHost: a\r\n\r\n")
	if e := r.end(t); e.Why != ByTimeout || e.Err != nil {
		t.Errorf("it ended with %+v, want by its timeout", e)
	}
	if used := kept.Used(); used != 0 {
		t.Errorf("%d bytes are kept in the end", used)
	}
}

// What is read of requests that may not be passed yet takes no more memory than there is
// for it, and what may be passed needs none.
func TestWhatIsWithheldHasItsBound(t *testing.T) {
	t.Parallel()
	const budget = 64 << 10
	kept := conn.NewBudget(budget)
	unfinished := "GET /" + strings.Repeat("x", 9<<10)
	all := make([]relayed, 0, 20)
	for range cap(all) {
		r := guarded(t, Options{Kept: kept})
		r.say(t, unfinished)
		all = append(all, r)
	}
	ends := make(chan Ended, len(all))
	for _, r := range all {
		go func() { ends <- <-r.ended }()
	}
	for ended := range 17 { // three have room for both copies
		select {
		case e := <-ends:
			if e.Why != ByMemory {
				t.Errorf("one ended with %+v, want for want of memory", e)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%d of %d have ended, and %d bytes are kept", ended, len(all), kept.Used())
		}
	}
	if used := kept.Used(); used > budget || used < 3*2*int64(len(unfinished)) {
		t.Errorf("%d bytes are kept, of %d", used, budget)
	}
	guarded(t, Options{Kept: kept}).ask(t, "GET /others HTTP/1.1\r\nHost: a\r\n\r\n")
	for _, r := range all {
		_ = r.client.Close()
		_ = r.server.Close()
	}
	for range 3 {
		<-ends
	}
	if used := kept.Used(); used != 0 {
		t.Errorf("%d bytes are kept in the end", used)
	}
}

// A server that doesn't read costs little where what its client says can't be left with
// the client, since it has to be read for where requests begin and end.
func TestAStalledServerCostsLittleWhereChunksAreSmall(t *testing.T) {
	t.Parallel()
	const stalls = 8
	kept := conn.NewBudget(1)
	kept.Force(1) // others have taken all
	whole := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
		strings.Repeat("3e8\r\n"+strings.Repeat("x", 1000)+"\r\n", 12<<10) + "0\r\n\r\n"
	all := make([]relayed, 0, stalls)
	for range stalls {
		r := guarded(t, Options{Kept: kept})
		go func() { _, _ = io.WriteString(r.client, whole) }()
		all = append(all, r)
	}
	for deadline := time.Now().Add(20 * time.Second); kept.Used() == 1; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is kept though no server reads")
		}
	}
	<-time.After(300 * time.Millisecond) // the others stall
	if used := kept.Used() - 1; used > stalls*fewBytes {
		t.Errorf("%d bytes are kept of %d clients", used, stalls)
	}
	for _, r := range all {
		r.serve(t, whole)
	}
	if used := kept.Used() - 1; used != 0 {
		t.Errorf("%d bytes are kept in the end", used)
	}
}

// cramped is guarded with little room on the way to the server, as between pods.
func cramped(t *testing.T, o Options) relayed {
	t.Helper()
	o.Exchange = http1.NewExchange()
	o.Exchange.Only(func(host string) bool { return host == "a" })
	client, inside := connected(t)
	outside, server := connected(t)
	if err := errors.Join(outside.SetWriteBuffer(8<<10), server.SetReadBuffer(8<<10)); err != nil {
		t.Fatal(err)
	}
	r := relayed{client, server, make(chan Ended, 1)}
	go func() { r.ended <- Run(t.Context(), inside, outside, o, nil) }()
	for _, c := range []net.Conn{client, server} {
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	}
	return r
}

// An upload to a server that is slow to take it in gets there whole, and what follows it is
// judged from its first byte, however much of it there was room for at a time.
func TestAnUploadWithLittleRoomIsWholeAndGuarded(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		for size := 20 << 10; size < 120<<10; size += 17_001 {
			kept := conn.NewBudget(1 << 20)
			if full {
				kept.Force(1 << 20)
			}
			r := cramped(t, Options{Kept: kept})
			body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
			want := fmt.Sprintf("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%sGET /2 HTTP/1.1\r\nHost: a\r\n\r\n", size, body)
			go func() { _, _ = io.WriteString(r.client, want+"GET /3 HTTP/1.1\r\nHost: b\r\n\r\n") }()
			var got []byte
			buf := make([]byte, 3000)
			for len(got) < len(want) {
				n, err := r.server.Read(buf)
				if got = append(got, buf[:n]...); err != nil {
					t.Fatalf("of a body of %d bytes, with no memory left %t: the server got %d of %d bytes, and then %v", size, full, len(got), len(want), err)
				}
			}
			if string(got) != want {
				t.Fatalf("of a body of %d bytes, with no memory left %t: the server got something else", size, full)
			}
			_, _ = io.WriteString(r.server, answer+answer)
			e := r.end(t)
			if rest, err := io.ReadAll(r.server); len(rest) > 0 {
				t.Fatalf("of a body of %d bytes, with no memory left %t: the server got %q more, %v", size, full, rest, err)
			}
			if full && e.Why != ByMemory || !full && (e.Why != ByTurn || !strings.HasPrefix(string(e.Rest), "GET /3")) {
				t.Fatalf("of a body of %d bytes, with no memory left %t: it ended with %s and the rest %.20q", size, full, e.Why, e.Rest)
			}
			if !full {
				_ = unix.Close(e.Client)
			}
			_ = r.client.Close()
			_ = r.server.Close()
		}
	}
}

// What a client says before the server has agreed to another protocol gets there once it
// has, though the client says no more.
func TestWhatIsSaidBeforeAnUpgradeGetsThereAfterIt(t *testing.T) {
	t.Parallel()
	kept := conn.NewBudget(1 << 20)
	r := guarded(t, Options{Kept: kept})
	const request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	r.say(t, request, "hello")
	got := make([]byte, len(request))
	if _, err := io.ReadFull(r.server, got); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); kept.Used() == 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is withheld")
		}
	}
	if _, err := io.WriteString(r.server, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hello", " and more"} {
		if got := make([]byte, len(want)); true {
			if _, err := io.ReadFull(r.server, got); err != nil || string(got) != want {
				t.Fatalf("the server got %q, %v, want %q", got, err, want)
			}
		}
		r.say(t, " and more")
	}
	if used := kept.Used(); used != 0 {
		t.Errorf("%d bytes are kept", used)
	}
}

// Who isn't followed any further has heard all that it asked for before.
func TestWhoIsLetGoHasHeardAllThatItAskedFor(t *testing.T) {
	t.Parallel()
	r := guarded(t, Options{Head: time.Second, Kept: conn.NewBudget(1 << 20)})
	const size = 1 << 20
	const big = "GET /big HTTP/1.1\r\nHost: a\r\n\r\n"
	r.say(t, big, "GET /dawdles HT")
	// What a server says before it is asked is no answer.
	if got := make([]byte, len(big)); true {
		if _, err := io.ReadFull(r.server, got); err != nil || string(got) != big {
			t.Fatalf("the server got %q, %v, want %q", got, err, big)
		}
	}
	go func() {
		_, _ = fmt.Fprintf(r.server, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
	}()
	<-time.After(3 * time.Second) // its time is over, and it hasn't read anything
	_, _ = io.WriteString(r.client, "TP/1.1")
	got, _ := io.ReadAll(r.client)
	if head := len("HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n"); len(got) != head+size {
		t.Errorf("it heard %d bytes of %d", len(got), head+size)
	}
	if e := r.end(t); e.Why != ByTimeout {
		t.Errorf("it ended with %+v", e)
	}
}
