package http1

import (
	"strings"
	"testing"
)

func TestTheFirstFinalResponseIsMarked(t *testing.T) {
	const mark, ok = "Cold-Start: true\r\n", "HTTP/1.1 200 OK\r\n"
	const rest = "Content-Length: 5\r\n\r\nhello" + ok + "Content-Length: 0\r\n\r\n"
	long := "HTTP/1.1 200 " + strings.Repeat("a", maxStatusLine)
	for name, c := range map[string]struct{ sent, want string }{
		"a response":                     {ok + rest, ok + mark + rest},
		"HTTP/1.0":                       {"HTTP/1.0 404 Not Found\r\n\r\nno", "HTTP/1.0 404 Not Found\r\n" + mark + "\r\nno"},
		"no reason":                      {"HTTP/1.1 204\r\n\r\n", "HTTP/1.1 204\r\n" + mark + "\r\n"},
		"a long head":                    {ok + "A: " + strings.Repeat("b", 1<<17) + "\r\n" + rest, ok + mark + "A: " + strings.Repeat("b", 1<<17) + "\r\n" + rest},
		"100 Continue":                   {"HTTP/1.1 100 Continue\r\n\r\n" + ok + rest, "HTTP/1.1 100 Continue\r\n\r\n" + ok + mark + rest},
		"103 Early Hints, twice":         {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 2) + ok + rest, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 2) + ok + mark + rest},
		"a hint with a long field":       {"HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("a", 2*maxStatusLine) + "\r\n\r\n" + ok + rest, "HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("a", 2*maxStatusLine) + "\r\n\r\n" + ok + mark + rest},
		"a hint that ends by hand":       {"HTTP/1.1 103 Early Hints\r\nLink: </a>\n\n" + ok + rest, "HTTP/1.1 103 Early Hints\r\nLink: </a>\n\n" + ok + mark + rest},
		"half a head":                    {ok + "Content-Le", ok + mark + "Content-Le"},
		"half a line":                    {"HTTP/1.1 200 O", "HTTP/1.1 200 O"},
		"only hints":                     {"HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n"},
		"nothing":                        {"", ""},
		"a change of the protocol":       {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n" + ok + rest, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n" + ok + rest},
		"HTTP/2":                         {recorded(t, "http2"), recorded(t, "http2")},
		"HTTP/2's first lines":           {"\x00\x00\x06\x04\x00\n" + ok + rest, "\x00\x00\x06\x04\x00\n" + ok + rest},
		"TLS":                            {recorded(t, "tls_hello"), recorded(t, "tls_hello")},
		"another version":                {"HTTP/2 200 OK\r\n" + rest, "HTTP/2 200 OK\r\n" + rest},
		"a line by hand":                 {"HTTP/1.1 200 OK\n" + rest, "HTTP/1.1 200 OK\n" + rest},
		"no line at all":                 {"hello" + rest, "hello" + rest},
		"a long line":                    {long + "\r\n" + rest, long + "\r\n" + rest},
		"a response after a broken line": {"\r\n" + ok + rest, "\r\n" + ok + rest},
	} {
		t.Run(name, func(t *testing.T) {
			steps := []int{1, 7, len(c.sent)}
			for _, step := range steps {
				m := &Mark{}
				var got strings.Builder
				buffer := make([]byte, len(c.sent)+MarkRoom)
				for left := c.sent; left != ""; {
					n := copy(buffer[:len(buffer)-MarkRoom], left[:min(step, len(left))])
					left = left[n:]
					got.Write(buffer[:m.Add(buffer, n)])
				}
				if got.String() != c.want {
					t.Errorf("in steps of %d: got %.300q, want %.300q", step, got.String(), c.want)
				}
				if m.Over() && len(m.line) > maxStatusLine {
					t.Errorf("it keeps %d bytes", len(m.line))
				}
			}
		})
	}
}
