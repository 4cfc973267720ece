package dataplane

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	minecraftwire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// idle says that nobody who counts is or was here since a time.
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
			r.eventually("the player counts", func() bool { s := r.sessions(); return s.Sessions == 1 && !s.LastActive.Before(began) })
			play(t, client, query)
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
			r.eventually("the sessions of who asked are over", func() bool { return r.server.udpSessions.Used() == 3 })
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
