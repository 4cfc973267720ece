package dataplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	minecraftwire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// idle reports whether nobody who counts is or was here since a time.
func (r *rig) idleSince(then time.Time) bool {
	s := r.sessions()
	return s.Sessions == 0 && s.Queued == 0 && s.LastActive.Before(then)
}

func TestServerListsDontKeepAServerAwakeThatIsBehindTheResolver(t *testing.T) {
	status, login := recorded(t, v1alpha1.ProtocolMinecraft, "status_765"), recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
	for name, balance := range map[string]v1alpha1.Balance{"with handoff Never": v1alpha1.BalanceSpread, "with handoff Direct": ""} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, echo)
			r.backend(server, true)
			r.balanced(balance)
			began := time.Now()
			for _, chunks := range [][]string{{status}, strings.Split(status, ""), {"\xfe\x01"}, {"GET / HTTP/1.1\r\n\r\n"}} {
				c := dialTCP(t, address)
				for _, chunk := range chunks {
					write(t, c, chunk)
				}
				// It is the server that answers, and gets each byte once.
				expect(t, c, strings.Join(chunks, ""))
				write(t, c, "more")
				expect(t, c, "more")
				if got := r.idleSince(began); got != (balance != "") {
					t.Errorf("%.10q: idle is %t", chunks[0], got)
				}
				_ = c.Close()
			}
			player := dialTCP(t, address)
			write(t, player, login)
			expect(t, player, login)
			if r.sessions().Sessions == 0 || r.idleSince(began) {
				t.Error("a player doesn't count")
			}
			if got := r.operator.count(); got != 0 {
				t.Errorf("%d wake calls", got)
			}
		})
	}
}

func TestProbesOverHTTPDontKeepAServerAwakeThatIsBehindTheResolver(t *testing.T) {
	const probe, page = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	r := newRig(t)
	address := r.serve("game", route.TCP, probed, func(p *route.Port) {
		p.Protocol, p.Probes = v1alpha1.ProtocolHTTP, []proto.Probe{{Method: "GET", Path: "/healthz", Status: 204}}
	})
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	began := time.Now()
	for _, sent := range []string{probe, page} {
		c := dialTCP(t, address)
		write(t, c, sent)
		// The server itself answers both.
		expect(t, c, sent)
		if got := r.idleSince(began); got != (sent == probe) {
			t.Errorf("%.12q: idle is %t", sent, got)
		}
	}
}

func TestWhatFollowsAProbeOnItsConnectionKeepsTheServerAwake(t *testing.T) {
	const upload = "POST /status HTTP/1.1\r\nHost: lobby\r\n"
	chunks := upload + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(request), request)
	body := upload + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(request), request)
	for name, c := range map[string]struct {
		first, then string
		// answers is how many there are to then, and counts whether it does.
		answers int
		counts  bool
	}{
		"a probe":                 {probe, probe, 1, false},
		"probes at once":          {probe + probe, probe + probe, 2, false},
		"probes with bodies":      {body + chunks, chunks + body, 2, false},
		"half a probe":            {probe, probe[:30], 0, false},
		"a request":               {probe, request, 1, true},
		"a request and a probe":   {probe, request + probe, 2, true},
		"a request after bodies":  {body + chunks, chunks + body + request, 3, true},
		"another method":          {probe, "DELETE /healthz HTTP/1.1\r\nHost: lobby\r\n\r\n", 1, true},
		"an upgrade":              {probe, "GET /healthz HTTP/1.1\r\nHost: lobby\r\nUpgrade: websocket\r\n\r\n", 1, true},
		"a long head":             {probe, "GET /healthz HTTP/1.1\r\nHost: lobby\r\nCookie: " + strings.Repeat("a", 4<<10) + "\r\n\r\n", 1, true},
		"what is no HTTP":         {probe, "\x00\x01\n", 0, true},
		"an answer until the end": {"GET /close HTTP/1.1\r\nHost: lobby\r\n\r\n", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("web", route.TCP, speaksHTTP, probed, func(p *route.Port) {
				p.Probes = append(p.Probes, proto.Probe{Method: "POST", Path: "/status"}, proto.Probe{Method: "GET", Path: "/close"})
			})
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, func(c *net.TCPConn) {
				in := bufio.NewReader(c)
				for {
					got, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, got.Body)
					if got.URL.Path == "/close" {
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello")
						return
					}
					_, _ = io.WriteString(c, response)
				}
			})
			r.backend(server, true)
			r.balanced(v1alpha1.BalanceSpread)
			began := time.Now()
			client := dialTCP(t, address)
			defer func() { _ = client.Close() }()
			in := bufio.NewReader(client)
			write(t, client, c.first)
			answer(t, in)
			if !r.idleSince(began) {
				t.Error("who asks for a probe first counts")
			}
			for range strings.Count(c.first, "lobby\r\n") - strings.Count(c.first, request) - 1 {
				answer(t, in)
			}
			// It comes as one, and in pieces.
			pieces := min(len(c.then), 3)
			for i := range pieces {
				write(t, client, c.then[i*len(c.then)/pieces:(i+1)*len(c.then)/pieces])
			}
			for range c.answers {
				answer(t, in)
			}
			if c.counts {
				r.eventually("it counts", func() bool { return r.sessions().Sessions == 1 && !r.idleSince(began) })
			} else if !r.idleSince(began) {
				t.Error("it counts")
			}
			_ = client.CloseWrite()
			_, _ = io.Copy(io.Discard, in)
			r.eventually("it is over", func() bool { return r.server.Clients() == 0 })
			if s := r.sessions(); s.Sessions != 0 || s.LastActive.Before(began) == c.counts {
				t.Errorf("at the end there are %d sessions, the last active at %s; it began at %s", s.Sessions, s.LastActive, began)
			}
		})
	}
}

func TestWhatComesWithAProbeAtOnceKeepsTheServerAwake(t *testing.T) {
	r := newRig(t)
	address := r.serve("web", route.TCP, speaksHTTP, probed)
	server := freeAddress(t, route.TCP)
	webServer(t, server, "hello")
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	c := dialTCP(t, address)
	write(t, c, probe+request)
	in := bufio.NewReader(c)
	for range 2 {
		answer(t, in)
	}
	if got := r.sessions().Sessions; got != 1 {
		t.Errorf("%d sessions, want 1", got)
	}
}

func TestAFullServerAnswersQueries(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.servers(serving(server, "pod-a"))
	r.balanced(v1alpha1.BalanceSpread)
	r.players("a", 2, 2)
	status := recorded(t, v1alpha1.ProtocolMinecraft, "status_765")
	c := dialTCP(t, address)
	write(t, c, status)
	expect(t, c, status)
	player := dialTCP(t, address)
	write(t, player, recorded(t, v1alpha1.ProtocolMinecraft, "login_765"))
	r.queued(1)
	// Who only asks doesn't wait behind who does.
	c = dialTCP(t, address)
	write(t, c, status)
	expect(t, c, status)
}

func TestQueriesAreAnsweredWhereTheServerIsGone(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
	r.backend(freeAddress(t, route.TCP), true)
	r.balanced(v1alpha1.BalanceSpread)
	c := dialTCP(t, address)
	write(t, c, recorded(t, v1alpha1.ProtocolMinecraft, "status_765"))
	want := minecraftwire.Status{Version: "1.20.4", Protocol: 765, Capacity: 7, Description: "it wakes since 0s"}
	if got := minecraftStatus(t, c); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.undisturbed()
}

// A monitor asks a server whose container runs and whose port is closed, as Kubernetes sees it up.
func TestProbesAreAnsweredWhereTheServerIsGone(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed, speaksHTTP)
	r.backend(freeAddress(t, route.TCP), true)
	r.balanced(v1alpha1.BalanceSpread)
	// Nothing stays on its connection, so that the next probe is judged anew.
	ask := func() string {
		c := dialTCP(t, address)
		write(t, c, probe)
		in := bufio.NewReader(c)
		status, _, body := answer(t, in)
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("after the answer: %v, want the end", err)
		}
		return fmt.Sprintf("%d %s", status, body)
	}
	for range 2 {
		if got := ask(); got != "200 asleep\n" {
			t.Errorf("got %q", got)
		}
	}
	r.undisturbed()
	// Whoever wants the service waits for it.
	write(t, dialTCP(t, address), request)
	r.queued(1)
}

// One of several that can be reached answers itself.
func TestAProbeFindsTheServerThatIsThere(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed, speaksHTTP)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.servers(serving(freeAddress(t, route.TCP), "pod-a"), serving(server, "pod-b"), serving(freeAddress(t, route.TCP), "pod-c"))
	r.balanced(v1alpha1.BalanceSpread)
	for range 10 {
		c := dialTCP(t, address)
		write(t, c, probe)
		expect(t, c, probe)
	}
}

func TestAClientWhoSaysNothingIsNoSession(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	began := time.Now()
	c := dialTCP(t, address)
	write(t, c, "\x10")
	_ = c.CloseWrite()
	expectEnd(t, c)
	if !r.idleSince(began) {
		t.Error("it counts")
	}
}

// Who says too little in time is refused though a server is up.
func TestAnUnfinishedClientIsNotGivenToAServerThatIsUp(t *testing.T) {
	const timeout = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	for name, c := range map[string]struct {
		protocol   v1alpha1.Protocol
		sent, want string
	}{
		"HTTP and nothing":      {v1alpha1.ProtocolHTTP, "", ""},
		"half a request":        {v1alpha1.ProtocolHTTP, "GET / HTTP/1.1\r\nHost: lob", timeout},
		"Minecraft and nothing": {v1alpha1.ProtocolMinecraft, "", ""},
		"half a handshake":      {v1alpha1.ProtocolMinecraft, "\x10", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.route.Hold.Handshake = 50 * time.Millisecond
			address := r.serve("game", route.TCP, probed, speaks(c.protocol))
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, tag("hello"))
			r.backend(server, true)
			r.balanced(v1alpha1.BalanceSpread)
			client := dialTCP(t, address)
			write(t, client, c.sent)
			if got, err := io.ReadAll(client); err != nil || string(got) != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			r.eventually("it is counted", func() bool { return r.refused(proto.Unfinished) == 1 })
		})
	}
}

// Where nothing is known of the protocol the server may speak first.
func TestAServerThatSpeaksFirstIsNotWaitedFor(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("hello"))
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	expect(t, dialTCP(t, address), "hello")
	if r.sessions().Sessions != 1 {
		t.Error("it doesn't count")
	}
}

func TestUDPQueriesDontKeepAServerAwakeThatIsBehindTheResolver(t *testing.T) {
	for protocol, c := range map[v1alpha1.Protocol]struct{ query, join string }{
		v1alpha1.ProtocolBedrock: {"ping", "request1"},
		v1alpha1.ProtocolQuake3:  {"getstatus", "getchallenge"},
		v1alpha1.ProtocolSource:  {"info_request", ""},
	} {
		t.Run(string(protocol), func(t *testing.T) {
			query, join := recorded(t, protocol, c.query), "any other datagram"
			if c.join != "" {
				join = recorded(t, protocol, c.join)
			}
			r := newRig(t)
			address := r.serve("game", route.UDP, probed, speaks(protocol))
			at := freeAddress(t, route.UDP)
			server := listenUDP(t, at)
			r.servers(serving(at, types.UID("pod-a")))
			r.balanced(v1alpha1.BalanceSpread)
			r.players("a", 0, 1)
			began := time.Now()
			client := dialUDP(t, address)
			play(t, client, query, query)
			if !r.idleSince(began) {
				t.Error("who asks keeps the server awake")
			}
			// It joins with the same socket: that is a session.
			play(t, client, join)
			r.eventually("the player has a session", func() bool { return r.sessions().Sessions == 1 })
			play(t, client, query)
			r.eventually("the player counts", func() bool { s := r.sessions(); return s.Sessions == 1 && !s.LastActive.Before(began) })
			if got := r.sessions().Sessions; got != 1 {
				t.Errorf("%d sessions after the player asked, too; want 1", got)
			}
			// The server is full, and answers who asks.
			r.players("a", 1, 1)
			play(t, dialUDP(t, address), query)
			waits := dialUDP(t, address)
			write(t, waits, join)
			r.queued(1)
			joined := 0
			for _, datagram := range server.all() {
				if datagram == join {
					joined++
				}
			}
			if joined != 1 {
				t.Errorf("the server got %d of the two who join, want the first", joined)
			}
			r.eventually("the sessions of who asked are over", func() bool { return r.server.Usage().UDPSessions == 3 })
		})
	}
}

func TestUDPQueriesAreAnsweredWhereNoServerCan(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP, speaks(v1alpha1.ProtocolQuake3))
	// The container runs, and nobody knows whether it is bound.
	server := freeAddress(t, route.UDP)
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	query := recorded(t, v1alpha1.ProtocolQuake3, "getstatus")
	ask := func() string {
		c := dialUDP(t, address)
		write(t, c, query)
		buf := make([]byte, 2048)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	for range 3 {
		if got := ask(); !strings.Contains(got, "it wakes since") {
			t.Fatalf("got %q", got)
		}
	}
	r.undisturbed()
	// Nobody joins, and the list shows all the same that it is up once it is.
	listenUDP(t, server)
	r.eventually("the server answers", func() bool { return ask() == "re:"+query })
	if r.operator.count() > 0 || r.sessions().Sessions > 0 {
		t.Error("who asks woke the server or counts")
	}
}
