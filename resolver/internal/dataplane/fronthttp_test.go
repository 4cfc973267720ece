package dataplane

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// web is a service of HTTP behind a front that answers with its name, what it was
// asked, and whom for.
func (s *shared) web(name string, hosts ...string) (up func()) {
	s.t.Helper()
	s.service(name, v1alpha1.ProtocolHTTP, hosts...)
	server := freeAddress(s.t, route.TCP)
	return func() {
		listenTCP(s.t, server, func(c *net.TCPConn) {
			in := bufio.NewReader(c)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				body, _ := io.ReadAll(r.Body)
				text := fmt.Sprintf("%s: %s %s%s %s", name, r.Method, r.Host, r.URL.Path, body)
				if r.Header.Get("Upgrade") != "" {
					_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
					_, _ = io.Copy(c, in)
					return
				}
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			}
		})
		s.up(name, server)
	}
}

// get is a request.
func get(host, path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

func post(host, path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", path, host, len(body), body)
}

// nextResponse reads a response.
func nextResponse(t testing.TB, in *bufio.Reader) (status int, text string) {
	t.Helper()
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("reading a response: %v", err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("reading a response: %v", err)
	}
	return r.StatusCode, strings.TrimSpace(string(body))
}

// Browsers, and proxies even more so, ask for several hosts on one connection.
func TestEachRequestReachesTheHostThatItIsFor(t *testing.T) {
	t.Parallel()
	for name, chunks := range map[string]func(all string) []string{
		"one after the other": nil,
		"at once":             func(all string) []string { return []string{all} },
		"byte by byte":        func(all string) []string { return strings.Split(all, "") },
		"in pieces": func(all string) (pieces []string) {
			for len(all) > 17 {
				pieces, all = append(pieces, all[:17]), all[17:]
			}
			return append(pieces, all)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			book, logs := withLog(t)
			s := newShared(t, logs)
			s.web("shop", "shop.example.com")()
			s.web("blog", "blog.example.com", "*.blog.example.com")()
			c := dialTCP(t, s.address)
			in := bufio.NewReader(c)
			long := "/" + strings.Repeat("0123456789abcdef", 300)
			asks := []struct{ said, want string }{
				{get("shop.example.com", "/1"), "shop: GET shop.example.com/1"},
				{post("Shop.Example.com:80", "/2", "hello"), "shop: POST Shop.Example.com:80/2 hello"},
				{get("blog.example.com", "/3"), "blog: GET blog.example.com/3"},
				{get("a.blog.example.com.", "/4"), "blog: GET a.blog.example.com./4"},
				{post("shop.example.com", "/5", strings.Repeat("x", 1000)), "shop: POST shop.example.com/5 " + strings.Repeat("x", 1000)},
				{"GET http://blog.example.com/6 HTTP/1.1\r\nHost: shop.example.com\r\n\r\n", "blog: GET blog.example.com/6"},
				{get("shop.example.com", long), "shop: GET shop.example.com" + long},
				{get("shop.example.com", long), "shop: GET shop.example.com" + long},
			}
			if chunks != nil {
				var all strings.Builder
				for _, ask := range asks {
					all.WriteString(ask.said)
				}
				for _, chunk := range chunks(all.String()) {
					write(t, c, chunk)
				}
			}
			for _, ask := range asks {
				if chunks == nil {
					write(t, c, ask.said)
				}
				if status, got := nextResponse(t, in); status != 200 || got != ask.want {
					t.Fatalf("%.40q was answered %d, %.80q, want %.80q", ask.said, status, got, ask.want)
				}
			}
			write(t, c, get("nobody.example.com", "/8"))
			if status, text := nextResponse(t, in); status != http.StatusNotFound || !strings.Contains(text, "no server by this name") {
				t.Errorf("a name that nobody has is told %d, %q", status, text)
			}
			expectEnd(t, c)
			s.eventually("all is given back", func() bool {
				f := s.server.fronts[s.key]
				return s.server.Clients() == 0 && f.FilesTaken() == 0 && s.server.Held.Used() == 0
			})
			s.eventually("each stay has a line", func() bool {
				turns, ends := 0, 0
				for _, l := range book.lines(t) {
					if l.End == "turn" {
						turns++
					}
					ends++
				}
				return turns == 5 && ends == 6
			})
		})
	}
}

func TestARequestForAnotherHostWakesItAndIsHeld(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.web("shop", "shop.example.com")()
	wake := s.web("blog", "blog.example.com")
	c := dialTCP(t, s.address)
	in := bufio.NewReader(c)
	write(t, c, get("shop.example.com", "/1")+post("blog.example.com", "/2", "hel"))
	if _, got := nextResponse(t, in); got != "shop: GET shop.example.com/1" {
		t.Fatalf("got %q", got)
	}
	s.eventually("it is held", func() bool { return s.sessionsOf("blog").Queued == 1 && s.sessionsOf("shop").Sessions == 0 })
	s.eventually("the operator is asked to wake it", func() bool {
		return slices.ContainsFunc(s.operator.all(), func(call informerapi.WakeRequest) bool { return call.Svc == "blog" })
	})
	write(t, c, get("shop.example.com", "/3"))
	wake()
	if _, got := nextResponse(t, in); got != "blog: POST blog.example.com/2 hel" {
		t.Errorf("got %q", got)
	}
	if _, got := nextResponse(t, in); got != "shop: GET shop.example.com/3" {
		t.Errorf("got %q", got)
	}
}

// Nobody can tell where the next request begins once a client, or a server, says what
// isn't plain. Then nothing more is led anywhere, and no server is connected to again and
// again.
func TestNothingIsLedAstrayAtAFront(t *testing.T) {
	t.Parallel()
	const chunked = "POST /c HTTP/1.1\r\nHost: odd.example.com\r\nTransfer-Encoding: chunked\r\n\r\n"
	plain := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, c := range map[string]struct {
		// answers are the server's, one for each time that something comes.
		answers []string
		// first is said at once, and then once that is answered.
		first, then string
		status      int
		// unheard is set where the client doesn't hear all that the server says, nor anything
		// else: its connection is reset. Unanswered is set where that is so from the start.
		unheard, unanswered bool
	}{
		"CONNECT":                     {first: "CONNECT odd.example.com:443 HTTP/1.1\r\nHost: odd.example.com\r\n\r\n", status: 400},
		"a bad chunk with its head":   {first: chunked + "ZZZ\r\n"},
		"a bad chunk":                 {answers: []string{plain}, first: chunked, then: "ZZZ\r\n" + get("blog.example.com", "/stolen")},
		"a request in a broken body":  {answers: []string{plain}, first: chunked, then: "30\r\n" + get("blog.example.com", "/stolen") + "\r\nZZ\r\n"},
		"two lengths":                 {answers: []string{plain}, first: get("odd.example.com", "/"), then: "POST / HTTP/1.1\r\nHost: odd.example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n" + get("blog.example.com", "/stolen")},
		"a server's two lengths":      {answers: []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok" + plain}, first: get("odd.example.com", "/"), then: get("blog.example.com", "/stolen"), unheard: true, unanswered: true},
		"an answer that nobody asked": {answers: []string{plain + plain}, first: get("odd.example.com", "/"), then: get("blog.example.com", "/stolen"), unheard: true},
		"a change of the protocol that nobody asked for": {
			answers: []string{"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n" + plain},
			first:   get("odd.example.com", "/"), then: get("blog.example.com", "/stolen"), unheard: true, unanswered: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShared(t)
			var dials, astray atomic.Int64
			odd, blog := freeAddress(t, route.TCP), freeAddress(t, route.TCP)
			listenTCP(t, odd, func(conn *net.TCPConn) {
				dials.Add(1)
				buf := make([]byte, 4096)
				for _, answer := range c.answers {
					if _, err := conn.Read(buf); err != nil {
						return
					}
					_, _ = io.WriteString(conn, answer)
				}
				for {
					n, err := conn.Read(buf)
					if bytes.Contains(buf[:n], []byte("/stolen")) && !strings.Contains(name, "in a broken body") {
						astray.Add(1)
					}
					if err != nil {
						return
					}
				}
			})
			listenTCP(t, blog, func(*net.TCPConn) { astray.Add(1) })
			s.service("odd", v1alpha1.ProtocolHTTP, "odd.example.com")
			s.service("blog", v1alpha1.ProtocolHTTP, "blog.example.com")
			s.up("odd", odd)
			s.up("blog", blog)
			conn := dialTCP(t, s.address)
			in := bufio.NewReader(conn)
			write(t, conn, c.first)
			if c.then != "" {
				if !c.unanswered {
					if status, _ := nextResponse(t, in); status != 200 {
						t.Fatalf("got %d", status)
					}
				}
				if _, err := io.WriteString(conn, c.then); err != nil && !c.unheard {
					t.Fatal(err)
				}
			}
			if c.unheard {
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				if rest, err := io.ReadAll(in); len(rest) > 0 || os.IsTimeout(err) {
					t.Errorf("the client hears %q more, and then %v", rest, err)
				}
			}
			if c.status != 0 {
				if status, _ := nextResponse(t, in); status != c.status {
					t.Errorf("got %d, want %d", status, c.status)
				}
			}
			s.never("a request is led astray, or the server is connected to again", 300*time.Millisecond, func() bool {
				return astray.Load() > 0 || dials.Load() > 1
			})
			_ = conn.SetLinger(0)
			_ = conn.Close()
			s.eventually("nothing is left", func() bool { return s.server.Clients() == 0 && s.server.Held.Used() == 0 })
		})
	}
}

func TestAProbeAtAFrontHidesNoOtherHost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asleep  bool
		balance v1alpha1.Balance
	}{
		"asleep": {true, ""}, "awake, with handoff Never": {false, v1alpha1.BalanceSpread}, "awake, with handoff Direct": {false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShared(t)
			wake := s.web("shop", "shop.example.com")
			s.web("blog", "blog.example.com")()
			s.show("shop", func(r *route.Route) {
				r.Balance = c.balance
				r.Ports[0].Probes = []proto.Probe{{Method: "GET", Path: "/healthz", Status: 204}}
			})
			want := 204
			if !c.asleep {
				wake()
				want = 200
			}
			for _, together := range []bool{false, true} {
				conn := dialTCP(t, s.address)
				in := bufio.NewReader(conn)
				probe, other := get("shop.example.com", "/healthz"), get("blog.example.com", "/1")
				if together {
					probe, other = probe+other, ""
				}
				write(t, conn, probe)
				if status, _ := nextResponse(t, in); status != want {
					t.Fatalf("a probe is told %d, want %d", status, want)
				}
				write(t, conn, other)
				if status, got := nextResponse(t, in); status != 200 || got != "blog: GET blog.example.com/1" {
					t.Errorf("got %d, %q", status, got)
				}
				write(t, conn, get("shop.example.com", "/healthz"))
				if status, _ := nextResponse(t, in); status != want {
					t.Errorf("the next probe is told %d, want %d", status, want)
				}
				_ = conn.Close()
			}
			if c.asleep && s.operator.asked("shop") {
				t.Error("a probe woke its service")
			}
		})
	}
}

// A server that doesn't change the protocol answers as any other, and then the connection
// may turn.
func TestAnUpgradeThatIsDeclinedIsARequest(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
		}
	})
	s.service("shop", v1alpha1.ProtocolHTTP, "shop.example.com")
	s.up("shop", server)
	s.web("blog", "blog.example.com")()
	c := dialTCP(t, s.address)
	in := bufio.NewReader(c)
	write(t, c, "GET / HTTP/1.1\r\nHost: shop.example.com\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if _, got := nextResponse(t, in); got != "no" {
		t.Fatalf("got %q", got)
	}
	write(t, c, get("blog.example.com", "/1"))
	if _, got := nextResponse(t, in); got != "blog: GET blog.example.com/1" {
		t.Errorf("got %q", got)
	}
}

func TestWhatCannotBeToldApartIsRefusedAtAFront(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.web("shop", "shop.example.com")()
	for name, c := range map[string]struct {
		said, first string
		status      int
		reason      proto.Reason
	}{
		"two hosts":     {said: "GET / HTTP/1.1\r\nHost: shop.example.com\r\nHost: b\r\n\r\n", status: 400, reason: proto.Unwanted},
		"nobody's host": {said: get("nobody.example.com", "/"), status: 404, reason: proto.UnknownName},
		"no host":       {said: "GET / HTTP/1.0\r\n\r\n", status: 404, reason: proto.UnknownName},
		"two hosts, later": {
			first: get("shop.example.com", "/"), said: "GET / HTTP/1.1\r\nHost: shop.example.com\r\nHost: b\r\n\r\n", status: 400, reason: proto.Unwanted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.refused("mc", c.reason)
			conn := dialTCP(t, s.address)
			in := bufio.NewReader(conn)
			if c.first != "" {
				write(t, conn, c.first)
				if status, _ := nextResponse(t, in); status != 200 {
					t.Fatalf("got %d", status)
				}
			}
			write(t, conn, c.said)
			if status, text := nextResponse(t, in); status != c.status {
				t.Errorf("it is told %d, %q, want %d", status, text, c.status)
			}
			if n := s.refused("mc", c.reason) - before; n != 1 {
				t.Errorf("%v are refused as %s, want 1", n, c.reason)
			}
		})
	}
	// Requests of HTTP/2 may be for several hosts at once.
	two := dialTCP(t, s.address)
	write(t, two, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	got, err := io.ReadAll(two)
	if err != nil || len(got) != 9+17 || got[3] != 4 || got[9+3] != 7 || got[len(got)-1] != 0x0d {
		t.Errorf("HTTP/2 is told %x, %v", got, err)
	}
	// After an upgrade there are no requests any more.
	upgraded := dialTCP(t, s.address)
	write(t, upgraded, "GET / HTTP/1.1\r\nHost: shop.example.com\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(upgraded)
	if status, _ := nextResponse(t, in); status != http.StatusSwitchingProtocols {
		t.Fatalf("got %d", status)
	}
	write(t, upgraded, get("nobody.example.com", "/"))
	echoed := make([]byte, len(get("nobody.example.com", "/")))
	if _, err := io.ReadFull(in, echoed); err != nil || string(echoed) != get("nobody.example.com", "/") {
		t.Errorf("got %q, %v", echoed, err)
	}
}
