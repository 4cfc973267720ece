package http1

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// ofHostA follows a connection whose client may ask for the host a alone.
func ofHostA() *Exchange {
	x := NewExchange()
	x.Only(func(host string) bool { return host == "a" })
	return x
}

// pass shows what a side says, in pieces, and returns what may be passed of it.
func (x *Exchange) pass(from Side, all string, piece int) string {
	var passed, withheld []byte
	for part := range slices.Chunk([]byte(all), piece) {
		n := x.Read(from, part)
		if from == Client {
			part = append(withheld, part...)
		}
		passed, withheld = append(passed, part[:n]...), part[n:]
		x.Passed(from)
	}
	return string(passed)
}

const (
	atOnce   = 1 << 20 // more than anybody says here
	upgrade  = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	upgrade2 = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
	switches = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	withBody = fiveMore + "hello"
	hasBare  = "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"
	badChunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// A client that may ask for another host next would take for that one's answer whatever this
// one's server says too much.
func TestOnlyAnswersOfAServerArePassed(t *testing.T) {
	for name, c := range map[string]struct {
		requests, passes, dropped string
	}{
		"an answer": {get, withBody, ""},
		"an answer that ends with the connection": {get, "HTTP/1.1 200 OK\r\n\r\n" + withBody, ""},
		"as many as there are requests":           {get + get, withBody + noBody, ""},
		"hints before the answer":                 {get, "HTTP/1.1 103 Early Hints\r\n\r\n" + withBody, ""},
		"another protocol":                        {upgrade, switches + withBody + withBody, ""},
		"HTTP/2":                                  {upgrade2, switches + withBody + withBody, ""},
		"another protocol, asked for second":      {get + upgrade, noBody + switches + withBody, ""},
		"another protocol than none":              {upgrade, withBody, ""},

		"an answer to nobody":                     {"", "", withBody},
		"two answers to one":                      {get, withBody, withBody},
		"two without a body":                      {get, noBody, noBody},
		"more than a body":                        {get, withBody, "!\r\n\r\n"},
		"a body after HEAD":                       {"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", fiveMore, withBody},
		"two lengths":                             {get, "", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello" + withBody},
		"line feeds":                              {get, "", hasBare + withBody},
		"line feeds in the second":                {get + get, noBody, hasBare + withBody},
		"no chunk":                                {get, badChunk, "zz\r\n\r\n" + withBody},
		"another protocol that nobody asked for":  {get, "", switches + withBody},
		"another protocol, asked for later":       {get + upgrade, "", switches + withBody},
		"another protocol after it was declined":  {upgrade + get, noBody, switches + withBody},
		"another protocol once all is answered":   {upgrade, noBody, switches + withBody},
		"another protocol after hints":            {get, "HTTP/1.1 103 Early Hints\r\n\r\n", switches + withBody},
		"another protocol before it is asked for": {"", "", switches + withBody},
	} {
		for _, piece := range []int{1, 7, atOnce} {
			x := ofHostA()
			if got := x.pass(Client, c.requests, piece); got != c.requests {
				t.Fatalf("%s in pieces of %d: the server hears %q", name, piece, got)
			}
			passed := x.pass(Server, c.passes+c.dropped, piece)
			// Part of a head can't be taken back, and is of no use without its end.
			rest, all := strings.CutPrefix(passed, c.passes)
			if !all || strings.Contains(rest, "\n\r\n") || strings.Contains(rest, "\n\n") || piece == atOnce && rest != "" {
				t.Errorf("%s in pieces of %d: the client hears %q, want %q", name, piece, passed, c.passes)
			}
			ends := c.dropped != ""
			if got := x.Passed(Server); got != ends {
				t.Errorf("%s in pieces of %d: nothing more is passed: %t, want %t", name, piece, got, ends)
			}
			if !ends {
				continue
			}
			if n := x.Read(Server, []byte(withBody)); n != 0 || x.Opaque(Server) != 0 {
				t.Errorf("%s in pieces of %d: %d bytes more are passed, and %d needn't be read", name, piece, n, x.Opaque(Server))
			}
			if n := x.Read(Client, []byte(get)); n != 0 || x.Opaque(Client) != 0 || x.Stopped() != Cut || !x.Guards() || x.Between() {
				t.Errorf("%s in pieces of %d: %d bytes more of the client's are passed", name, piece, n)
			}
		}
	}
}

// Nobody is harmed by what a server says too much if its client can't ask anybody else.
func TestAllThatTheOnlyServerSaysIsPassed(t *testing.T) {
	for _, all := range []string{withBody + withBody, hasBare + withBody, switches + withBody} {
		for _, piece := range []int{1, 7, atOnce} {
			x := NewExchange()
			x.feed(Client, []byte(get), piece)
			if got := x.pass(Server, all, piece); got != all || !x.Lost() || x.Passed(Server) || x.Opaque(Server) != math.MaxInt64 || x.Opaque(Client) != math.MaxInt64 {
				t.Errorf("in pieces of %d: the client hears %q, want %q", piece, got, all)
			}
		}
	}
}

// An answer that ends with the connection may begin before all is asked. What isn't for the
// server then stays where it is.
func TestARequestIsFollowedWhateverEndsItsAnswer(t *testing.T) {
	const head, body, next = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n", "01234567890123456789", "GET / HTTP/1.1\r\nHost: b\r\n\r\n"
	for _, piece := range []int{1, 7, atOnce} {
		x := ofHostA()
		x.pass(Client, head+body[:5], piece)
		x.pass(Server, "HTTP/1.1 200 OK\r\n\r\nhello", piece)
		if n := x.Opaque(Client); n != 15 {
			t.Errorf("in pieces of %d: %d bytes of the request needn't be read, want 15", piece, n)
		}
		if got := x.pass(Client, body[5:]+next, piece); got != body[5:] || x.Stopped() != Turned || x.Between() {
			t.Errorf("in pieces of %d: the server hears %q, and the client is stopped: %d", piece, got, x.Stopped())
		}
		if got := x.pass(Server, withBody, piece); got != withBody {
			t.Errorf("in pieces of %d: the client hears %q more", piece, got)
		}
	}
}
