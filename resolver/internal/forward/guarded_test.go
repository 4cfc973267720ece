package forward

import (
	"io"
	"strings"
	"testing"
	"time"

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
