package http1

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// feed shows what a side says, in pieces.
func (x *Exchange) feed(from Side, all []byte, piece int) {
	for len(all) > 0 {
		n := min(piece, len(all))
		x.Read(from, all[:n])
		x.Passed(from)
		all = all[n:]
	}
}

const (
	get      = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	noBody   = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	fiveMore = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
	chunks   = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10;a=\"b\"\r\n0123456789abcdef\r\n0\r\n\r\n"
)

// exchanges are what is said on connections, and whether they are idle then, and
// whether they are still followed.
var exchanges = map[string]struct {
	requests, responses string
	idle, lost          bool
}{
	"nothing at all":                {"", "", false, false},
	"a request":                     {get, "", false, false},
	"half a request":                {get[:9], "", false, false},
	"an answer without a body":      {get, noBody, true, false},
	"an answer with a body":         {get, fiveMore + "hello", true, false},
	"half an answer":                {get, fiveMore + "hel", false, false},
	"half an answer's head":         {get, fiveMore[:20], false, false},
	"an answer in chunks":           {get, "HTTP/1.1 200 OK\r\n" + chunks, true, false},
	"half an answer in chunks":      {get, ("HTTP/1.1 200 OK\r\n" + chunks)[:60], false, false},
	"chunks without their end":      {get, strings.TrimSuffix("HTTP/1.1 200 OK\r\n"+chunks, "\r\n"), false, false},
	"chunks with trailers":          {get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nContent-Length: 9\r\n\r\n", true, false},
	"an answer to HEAD":             {"HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, false},
	"an answer to HEAD with none":   {"HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", true, false},
	"204":                           {get, "HTTP/1.1 204 No Content\r\n\r\n", true, false},
	"304 with a length":             {get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", true, false},
	"no reason":                     {get, "HTTP/1.1 204\r\n\r\n", true, false},
	"100 and no more":               {"PUT / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n", false, false},
	"100 and an answer":             {"PUT / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nab", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + noBody, true, false},
	"an answer before all is asked": {"PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\na", noBody, false, false},
	"an upload":                     {"PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", noBody, true, false},
	"an upload in chunks":           {"PUT / HTTP/1.1\r\n" + chunks, noBody, true, false},
	"half an upload in chunks":      {("PUT / HTTP/1.1\r\n" + chunks)[:60], noBody, false, false},
	"two after each other":          {get + get, noBody + fiveMore + "hello", true, false},
	"two, one answered":             {get + get, noBody, false, false},
	"HEAD among others":             {get + "HEAD / HTTP/1.1\r\n\r\n" + get, noBody + fiveMore + fiveMore + "hello", true, false},
	"half of the next request":      {get + "G", noBody, false, false},
	"HTTP/1.0":                      {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", true, false},
	"a long field":                  {"GET / HTTP/1.1\r\nCookie: " + strings.Repeat("a", 9000) + "\r\n\r\n", noBody, true, false},
	"as much ahead as may be":       {strings.Repeat(get, maxOpen), strings.Repeat(noBody, maxOpen), true, false},

	"more ahead than may be":           {strings.Repeat(get, maxOpen+1), strings.Repeat(noBody, maxOpen+1), false, true},
	"until the end":                    {get, "HTTP/1.1 200 OK\r\n\r\nhello", false, true},
	"an answer that nobody asked for":  {"", "HTTP/1.1 408 Request Timeout\r\n\r\n", false, true},
	"two answers to one":               {get, noBody + noBody, false, true},
	"an upgrade":                       {"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", "", false, true},
	"an upgrade to HTTP/2, taken":      {"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n", false, true},
	"an upgrade to HTTP/2, passed":     {"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n", noBody, true, false},
	"CONNECT":                          {"CONNECT a:1 HTTP/1.1\r\n\r\n", "", false, true},
	"HTTP/2":                           {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", false, true},
	"no HTTP":                          {"\x16\x03\x01\n", "", false, true},
	"no HTTP in the answer":            {get, "hello\r\n", false, true},
	"a request of two lengths":         {"PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", noBody, false, true},
	"a request of length and chunks":   {"PUT / HTTP/1.1\r\nContent-Length: 1\r\n" + chunks, noBody, false, true},
	"an answer of length and chunks":   {get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n" + chunks, false, true},
	"an answer of two lengths":         {get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", false, true},
	"an answer of another encoding":    {get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", false, true},
	"an answer of two encodings":       {get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", false, true},
	"chunks in HTTP/1.0":               {get, "HTTP/1.0 200 OK\r\n" + chunks, false, true},
	"a chunk longer than it says":      {get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", false, true},
	"a chunk of a strange size":        {get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", false, true},
	"a chunk of a huge size":           {get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8000000000000000\r\na", false, true},
	"a length with a sign":             {get, "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na", false, true},
	"lines that end in a line feed":    {"GET / HTTP/1.1\nHost: a\n\n", noBody, false, true},
	"a carriage return in a long line": {"GET / HTTP/1.1\r\nCookie: " + strings.Repeat("a", 2000) + "\rb\r\n\r\n", noBody, false, true},
	"an empty line between requests":   {get + "\r\n" + get, noBody, false, true},
}

func TestAConnectionIsIdleBetweenRequests(t *testing.T) {
	for name, c := range exchanges {
		for _, piece := range []int{1, 3, 1 << 20} {
			if name == "a long field" && piece == 3 {
				piece = 1000 // as the network cuts it
			}
			x := NewExchange()
			x.feed(Client, []byte(c.requests), piece)
			x.feed(Server, []byte(c.responses), piece)
			if idle := x.IdleFor(time.Now().Add(time.Hour)) > 0; idle != c.idle || x.Lost() != c.lost {
				t.Errorf("%s in pieces of %d: idle %v, lost %v; want %v, %v", name, piece, idle, x.Lost(), c.idle, c.lost)
			}
		}
	}
}

func TestQuietBeginsOnceAllIsPassedOn(t *testing.T) {
	x := NewExchange()
	later := func() bool { return x.IdleFor(time.Now().Add(time.Hour)) > 0 }
	x.feed(Client, []byte("PUT / HTTP/1.1\r\nContent-Length: 1\r\n\r\n"), 99)
	x.Read(Server, []byte(noBody))
	x.feed(Client, []byte("a"), 1)
	if later() {
		t.Error("the answer is on its way still")
	}
	x.Passed(Server)
	if !later() {
		t.Error("nothing is on its way any more")
	}
	if got := x.IdleFor(time.Now()); got > time.Minute {
		t.Errorf("it has been quiet for %s", got)
	}
	x.Read(Client, []byte("G"))
	if later() {
		t.Error("a request is on its way")
	}
}

func TestABodyNeedNotBeRead(t *testing.T) {
	const length = 10 << 20
	x := NewExchange()
	x.feed(Client, []byte(get), 99)
	x.feed(Server, []byte("HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(length)+"\r\n\r\n12345"), 99)
	if got := x.Opaque(Server); got != length-5 {
		t.Fatalf("%d bytes are opaque, want %d", got, length-5)
	}
	if got := x.Opaque(Client); got != 0 {
		t.Errorf("%d bytes of the next request are opaque", got)
	}
	x.Skip(Server, length-6)
	if x.IdleFor(time.Now().Add(time.Hour)) > 0 {
		t.Error("a byte is missing")
	}
	x.Skip(Server, 1)
	if x.IdleFor(time.Now().Add(time.Hour)) == 0 || x.Opaque(Server) != 0 {
		t.Error("the body is over")
	}
	// A chunk's bytes need not be read either, but its end.
	x.feed(Client, []byte(get), 99)
	x.feed(Server, []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n"), 99)
	if got := x.Opaque(Server); got != 256 {
		t.Errorf("%d bytes are opaque, want 256", got)
	}
	x.Skip(Server, 256)
	if x.Opaque(Server) != 0 {
		t.Error("the chunk's end is not opaque")
	}
	x.feed(Server, []byte("\r\n0\r\n\r\n"), 99)
	if x.IdleFor(time.Now().Add(time.Hour)) == 0 {
		t.Error("the body is over")
	}
	x.Read(Server, []byte("x"))
	if x.Opaque(Server) < 1<<62 || x.Opaque(Client) < 1<<62 {
		t.Error("what is not followed need not be read at all")
	}
}

func TestAClientIsWatchedUntilItAsksForSomethingElse(t *testing.T) {
	const wanted, other = "GET /a HTTP/1.1\r\nA: b\r\n\r\n", "GET /b HTTP/1.1\r\nA: b\r\n\r\n"
	const hidden = "PUT /a HTTP/1.1\r\nContent-Length: 25\r\n\r\n" + other
	for name, c := range map[string]struct {
		requests, responses, more string
		// heads are those that are judged, and called reports whether there was another one.
		heads  []string
		called bool
	}{
		"one":                         {wanted, "", "", []string{wanted}, false},
		"two":                         {wanted + wanted, "", "", []string{wanted, wanted}, false},
		"half of the next":            {wanted + "GET /b HTTP/1.1\r\n", "", "", []string{wanted}, false},
		"another":                     {wanted + other, "", "", []string{wanted, other}, true},
		"only the first other":        {other + wanted, "", other, []string{other}, true},
		"another in a body":           {hidden + wanted, "", "", []string{hidden[:len(hidden)-len(other)], wanted}, false},
		"another after a body":        {hidden + other, "", "", []string{hidden[:len(hidden)-len(other)], other}, true},
		"no HTTP":                     {wanted + "\x00\n", "", "", []string{wanted}, true},
		"more ahead than is followed": {strings.Repeat(wanted, maxOpen+1), "", "", slices.Repeat([]string{wanted}, maxOpen+1), true},
		"an answer until the end":     {wanted, "HTTP/1.1 200 OK\r\n\r\n", "", []string{wanted}, false},
		"what follows that":           {wanted, "HTTP/1.1 200 OK\r\n\r\n", wanted, []string{wanted}, true},
		"a head that is too long":     {wanted + "GET /a HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", maxAsked/6), "", "", []string{wanted}, true},
	} {
		for _, piece := range []int{1, 5, 1 << 20} {
			x := NewExchange()
			var heads []string
			calls := 0
			x.Watch(func(head []byte) bool {
				heads = append(heads, string(head))
				return bytes.HasPrefix(head, []byte("GET /a ")) || bytes.HasPrefix(head, []byte("PUT /a "))
			}, func() { calls++ })
			x.feed(Client, []byte(c.requests), piece)
			x.feed(Server, []byte(c.responses), piece)
			x.feed(Client, []byte(c.more), piece)
			if diff := cmp.Diff(c.heads, heads); diff != "" {
				t.Errorf("%s in pieces of %d: heads (-want +got):\n%s", name, piece, diff)
			}
			if want := map[bool]int{true: 1}[c.called]; calls != want {
				t.Errorf("%s in pieces of %d: told %d times, want %d", name, piece, calls, want)
			}
		}
	}
}
