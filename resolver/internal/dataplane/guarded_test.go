package dataplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// Addresses of loopback, each a source of its own.
const (
	here      = "127.0.0.1"
	elsewhere = "127.0.0.2"
)

func guarded(rules guard.Rules) func(*route.Port) {
	rules.SourceIPsPreserved = true
	return func(p *route.Port) { p.Guard = rules }
}

func maxFilesOf(n int) rigOption { return func(o *Options) { o.MaxFiles = n } }

// from connects from an address of loopback.
func from(t testing.TB, local string, network route.Network, address string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
	if network == route.UDP {
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(local)}
	}
	c, err := d.Dial(string(network), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// joins are what clients of each protocol send to join.
func joins(t *testing.T) map[v1alpha1.Protocol]string {
	return map[v1alpha1.Protocol]string{
		v1alpha1.ProtocolTCP: "hello", v1alpha1.ProtocolUDP: "hello",
		v1alpha1.ProtocolHTTP:      "GET / HTTP/1.1\r\nHost: lobby\r\n\r\n",
		v1alpha1.ProtocolMinecraft: recorded(t, v1alpha1.ProtocolMinecraft, "login_765"),
		v1alpha1.ProtocolBedrock:   recorded(t, v1alpha1.ProtocolBedrock, "request1"),
		v1alpha1.ProtocolSource:    "a game's own",
		v1alpha1.ProtocolQuake3:    recorded(t, v1alpha1.ProtocolQuake3, "getchallenge"),
	}
}

func networkOf(p v1alpha1.Protocol) route.Network {
	return route.Network(strings.ToLower(string(p.Transport())))
}

func TestWhoIsDeniedWakesNothingAndIsServedOnceSomebodyElseDid(t *testing.T) {
	for protocol, join := range joins(t) {
		t.Run(string(protocol), func(t *testing.T) {
			for name, rules := range map[string]guard.Rules{
				"by a network that is denied": guard.NewRules(nil, []string{here + "/32"}),
				"by one that is allowed":      guard.NewRules([]string{elsewhere + "/32"}, nil),
			} {
				t.Run(name, func(t *testing.T) {
					r := newRig(t)
					network := networkOf(protocol)
					address := r.serve("game", network, speaks(protocol), probed, guarded(rules))
					denied := from(t, here, network, address)
					write(t, denied, join)
					r.eventually("it is refused", func() bool { return r.refused(proto.Denied) == 1 })
					if protocol == v1alpha1.ProtocolHTTP {
						expectForbidden(t, denied)
					} else if network == route.TCP {
						expectGone(t, denied)
					}
					// A sleep that is under way goes on, too.
					r.phase(v1alpha1.PhaseFallingAsleep)
					write(t, from(t, here, network, address), join)
					r.eventually("it is refused again", func() bool { return r.refused(proto.Denied) == 2 })
					r.undisturbed()
					if s := r.sessions(); !s.LastActive.IsZero() {
						t.Errorf("the service was active at %s", s.LastActive)
					}
					r.phase(v1alpha1.PhaseAsleep)
					allowed := from(t, elsewhere, network, address)
					write(t, allowed, join)
					r.queued(1)
					r.eventually("the operator is asked", func() bool { return r.operator.count() > 0 })
					server := freeAddress(t, network)
					want := join
					if network == route.TCP {
						listenTCP(t, server, echo)
					} else {
						listenUDP(t, server)
						want = "re:" + join
					}
					r.backend(server, true)
					expect(t, allowed, want)
					r.queued(0)
					r.phase(v1alpha1.PhaseAwake)
					late := from(t, here, network, address)
					write(t, late, join)
					expect(t, late, want)
				})
			}
		})
	}
}

// Another resolver has found the backend up, or this one has before it started again.
func TestWhoIsDeniedIsServedByAResolverThatHasServedNobody(t *testing.T) {
	for protocol, join := range joins(t) {
		for name, adjust := range map[string]func(*route.Port){"probed": probed, "without a readiness probe": func(*route.Port) {}} {
			t.Run(string(protocol)+", "+name, func(t *testing.T) {
				r := newRig(t)
				r.phase(v1alpha1.PhaseAwake)
				network := networkOf(protocol)
				server := freeAddress(t, network)
				want := join
				if network == route.TCP {
					listenTCP(t, server, echo)
				} else {
					listenUDP(t, server)
					want = "re:" + join
				}
				address := r.serve("game", network, speaks(protocol), adjust, guarded(guard.NewRules(nil, []string{here + "/32"})))
				r.backend(server, true)
				denied := from(t, here, network, address)
				write(t, denied, join)
				expect(t, denied, want)
				if n := r.refused(proto.Denied); n != 0 {
					t.Errorf("%v are refused", n)
				}
				if n := r.operator.count(); n != 0 {
					t.Errorf("%d wake calls, want none", n)
				}
			})
		}
	}
}

// expectForbidden reports whether a client of HTTP is told no more than that it may not.
func expectForbidden(t *testing.T, c net.Conn) {
	t.Helper()
	in := bufio.NewReader(c)
	status, header, body := answer(t, in)
	if status != 403 || header.Get("Connection") != "close" || header.Get("Retry-After") != "" || body != "You may not wake this service.\n" {
		t.Errorf("who is denied got %d, %v, %q", status, header, body)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("after it came %q, %v", rest, err)
	}
}

func TestWhoIsDeniedIsToldSoInHTTPWhateverItAsksAndWheneverItIs(t *testing.T) {
	const upgrade = "GET / HTTP/1.1\r\nHost: lobby\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	onConnect := func(p *route.Port) { p.WakeOnConnect = true }
	for name, when := range map[string]func(*route.Port){"on a request": speaksHTTP, "on a connection": onConnect} {
		for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseFallingAsleep, v1alpha1.PhaseWaking, v1alpha1.PhaseAwake} {
			t.Run(name+", "+string(phase), func(t *testing.T) {
				r := newRig(t)
				r.phase(phase)
				address := r.serve("web", route.TCP, speaksHTTP, when, guarded(guard.NewRules(nil, []string{here + "/32"})))
				for i, head := range []string{request, probe, upgrade} {
					c := from(t, here, route.TCP, address)
					write(t, c, head[:9])
					write(t, c, head[9:])
					expectForbidden(t, c)
					if got := r.refused(proto.Denied); got != float64(i+1) {
						t.Errorf("%v were denied, want %d", got, i+1)
					}
				}
				// What is no HTTP is told nothing.
				c := from(t, here, route.TCP, address)
				write(t, c, "\x16\x03\x01\x02\x00\x01")
				expectGone(t, c)
				r.undisturbed()
			})
		}
	}
}

func TestWhoIsDeniedAndSaysNothingHasAHandshakesTime(t *testing.T) {
	r := newRig(t)
	r.route.Hold.Handshake = 50 * time.Millisecond
	address := r.serve("web", route.TCP, speaksHTTP, guarded(guard.NewRules(nil, []string{here + "/32"})))
	expectGone(t, from(t, here, route.TCP, address))
	if got := r.refused(proto.Unfinished); got != 1 {
		t.Errorf("%v were refused because they said nothing, want 1", got)
	}
}

func TestASourceThatIsDeniedIsHeardInNoMorePlacesThanAnother(t *testing.T) {
	r := newRig(t)
	rules := guard.NewRules(nil, []string{here + "/32"})
	rules.PerSource = guard.Limits{Connections: 2}
	address := r.serve("web", route.TCP, speaksHTTP, guarded(rules))
	slow := []net.Conn{from(t, here, route.TCP, address), from(t, here, route.TCP, address)}
	r.held(2)
	expectGone(t, from(t, here, route.TCP, address))
	if got := r.refused(proto.SourceConnections); got != 1 {
		t.Errorf("%v were refused as too many of a source, want 1", got)
	}
	for _, c := range slow {
		write(t, c, request)
		expectForbidden(t, c)
	}
	r.held(0)
}

func TestNoProtocolButHTTPTellsWhoIsDenied(t *testing.T) {
	heads := []string{"", "hello", "\xfe\x01", request, probe, strings.Repeat("x", proto.MaxHead)}
	for _, join := range joins(t) {
		heads = append(heads, join)
	}
	for protocol, names := range map[v1alpha1.Protocol][]string{
		v1alpha1.ProtocolMinecraft: {"status_765", "login_47", "legacy_ping"}, v1alpha1.ProtocolBedrock: {"ping"},
		v1alpha1.ProtocolSource: {"info_first", "info_request"}, v1alpha1.ProtocolQuake3: {"getinfo", "getstatus"},
		v1alpha1.ProtocolTLS: {"curl", "openssl_noname"},
	} {
		for _, name := range names {
			heads = append(heads, recorded(t, protocol, name))
		}
	}
	r := newRig(t)
	for name, protocol := range r.server.Protocols {
		answered := false
		for _, head := range heads {
			c := proto.Client{Service: &proto.Service{Name: "lobby"}, Now: time.Now()}
			answered = answered || len(protocol.Refusal(proto.Denied, []byte(head), c)) > 0
		}
		if want := name == v1alpha1.ProtocolHTTP; answered != want {
			t.Errorf("%s tells who is denied: %t, want %t", name, answered, want)
		}
	}
}

func TestHTTPClientsThatAskTooOftenAreToldSo(t *testing.T) {
	r := newRig(t)
	address := r.serve("web", route.TCP, speaksHTTP, guarded(guard.Rules{PerSourceRate: 1, PerServiceRate: 2}))
	ask := func(local string) net.Conn {
		c := from(t, local, route.TCP, address)
		write(t, c, request)
		return c
	}
	ask(here)
	r.queued(1)
	tooOften := func(local string) {
		t.Helper()
		status, header, body := answer(t, bufio.NewReader(ask(local)))
		if status != 429 || header.Get("Retry-After") != "5" || header.Get("Connection") != "close" || body != "lobby is asked for too often just now.\n" {
			t.Errorf("got %d, %v, %q", status, header, body)
		}
	}
	tooOften(here)
	ask(elsewhere)
	r.queued(2)
	tooOften("127.0.0.3")
	for _, reason := range []proto.Reason{proto.SourceRate, proto.ServiceRate} {
		if got := r.refused(reason); got != 1 {
			t.Errorf("%v clients were refused for %s, want 1", got, reason)
		}
	}
}

func TestWhoIsDeniedIsNotToldTheStatusEither(t *testing.T) {
	for protocol, query := range map[v1alpha1.Protocol]string{
		v1alpha1.ProtocolMinecraft: "status_765", v1alpha1.ProtocolBedrock: "ping", v1alpha1.ProtocolSource: "info_first", v1alpha1.ProtocolQuake3: "getstatus",
	} {
		t.Run(string(protocol), func(t *testing.T) {
			r := newRig(t)
			network := networkOf(protocol)
			address := r.serve("game", network, speaks(protocol), guarded(guard.NewRules(nil, []string{here + "/32"})))
			write(t, from(t, here, network, address), recorded(t, protocol, query))
			r.eventually("it is refused", func() bool { return r.refused(proto.Denied) == 1 })
			allowed := from(t, elsewhere, network, address)
			write(t, allowed, recorded(t, protocol, query))
			receive(t, allowed)
			if got := r.answered(); protocol != v1alpha1.ProtocolMinecraft && got != 1 {
				t.Errorf("%v queries were answered, want 1", got)
			}
			r.undisturbed()
		})
	}
}

func TestSoManyMayAskInAMinute(t *testing.T) {
	for protocol, join := range joins(t) {
		network := networkOf(protocol)
		soMany := func(t *testing.T, phase v1alpha1.Phase) {
			r := newRig(t)
			address := r.serve("game", network, speaks(protocol), guarded(guard.Rules{PerSourceRate: 2, PerServiceRate: 3}))
			r.phase(phase)
			ask := func(local string) { write(t, from(t, local, network, address), join) }
			ask(here)
			ask(here)
			r.queued(2)
			ask(here)
			r.eventually("the source's third is refused", func() bool { return r.refused(proto.SourceRate) == 1 })
			ask(elsewhere)
			r.queued(3)
			ask(elsewhere)
			r.eventually("the service's fourth is refused", func() bool { return r.refused(proto.ServiceRate) == 1 })
			r.queued(3)
		}
		for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking, v1alpha1.PhaseAwake} {
			t.Run(fmt.Sprintf("%s %s", protocol, phase), func(t *testing.T) { soMany(t, phase) })
		}
	}
}

func TestWhoIsRefusedKeepsNothingAwake(t *testing.T) {
	for _, network := range []route.Network{route.TCP, route.UDP} {
		t.Run(string(network), func(t *testing.T) {
			r := newRig(t, udpIdle(50*time.Millisecond))
			r.phase(v1alpha1.PhaseFallingAsleep)
			address := r.serve("game", network, guarded(guard.Rules{PerServiceRate: 1}))
			c := from(t, here, network, address)
			write(t, c, "x")
			r.queued(1)
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // It goes away for good.
			}
			_ = c.Close()
			var last time.Time
			r.eventually("nobody is there any more", func() bool {
				before := last
				last = r.sessions().LastActive
				return r.sessions().Queued == 0 && last.Equal(before)
			})
			write(t, from(t, here, network, address), "x")
			r.eventually("the next is refused", func() bool { return r.refused(proto.ServiceRate) == 1 })
			if now := r.sessions().LastActive; !now.Equal(last) {
				t.Errorf("the service was active at %s, want %s", now, last)
			}
		})
	}
}

func TestQueriesDontCountAsAsking(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft), guarded(guard.Rules{PerSourceRate: 1, PerServiceRate: 1}))
	for range 3 {
		c := dialTCP(t, address)
		write(t, c, recorded(t, v1alpha1.ProtocolMinecraft, "status_765"))
		minecraftStatus(t, c)
	}
	login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
	write(t, dialTCP(t, address), login)
	r.queued(1)
	c := dialTCP(t, address)
	write(t, c, login)
	if text := string(readFrame(t, c)); text[0] != 0 || len(text) < 20 {
		t.Errorf("who asks too often reads %q", text)
	}
	expectEnd(t, c)
}

func TestOneSourceHoldsSoManyAndRelayedPlayersArentHurt(t *testing.T) {
	for _, network := range []route.Network{route.TCP, route.UDP} {
		t.Run(string(network), func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", network, probed, guarded(guard.Rules{PerSource: guard.Limits{Connections: 2, Sessions: 3}}))
			connect := func(local string) net.Conn {
				c := from(t, local, network, address)
				write(t, c, "x")
				return c
			}
			players := []net.Conn{connect(here), connect(here)}
			r.queued(2)
			connect(here)
			r.eventually("a third is refused", func() bool { return r.refused(proto.SourceConnections) == 1 })
			players = append(players, connect(elsewhere))
			r.queued(3)
			r.held(3)
			server, answer := freeAddress(t, network), "x"
			if network == route.TCP {
				listenTCP(t, server, echo)
			} else {
				listenUDP(t, server)
				answer = "re:x"
			}
			r.backend(server, true)
			r.phase(v1alpha1.PhaseAwake)
			for _, c := range players {
				expect(t, c, answer)
			}
			r.eventually("nobody is held", func() bool { return r.sessions().Queued == 0 })
			r.held(0)
			third := connect(here)
			expect(t, third, answer)
			connect(here)
			r.eventually("a fourth session is refused", func() bool { return r.refused(proto.SourceSessions) == 1 })
			// Those who play go on.
			for _, c := range append(players, third) {
				write(t, c, "x")
				expect(t, c, answer)
			}
			if network == route.TCP {
				_ = third.Close()
				r.eventually("its place is free", func() bool { return r.sessions().Sessions == 3 })
				expect(t, connect(here), answer)
			}
		})
	}
}

// held says how many clients without a server the guard counts.
func (r *rig) held(want int32) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("the guard counts %d", want), func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return r.server.services[r.route.UID].Guard.Held() == want
	})
}

func TestOneSourceHasSoManyBytesHeldAndLosesNone(t *testing.T) {
	const most = 2048
	r := newRig(t)
	rules := guarded(guard.Rules{PerSource: guard.Limits{Bytes: most}})
	tcp, udp := r.serve("tcp", route.TCP, rules), r.serve("udp", route.UDP, rules)
	text := string(make([]byte, 3*most))
	greedy := from(t, here, route.TCP, tcp)
	go func() { _, _ = io.WriteString(greedy, text) }()
	r.eventually("the source's part is used up", func() bool { return r.server.Held.Used() == most })
	r.never("more of it is kept", 50*time.Millisecond, func() bool { return r.server.Held.Used() > most })
	modest := from(t, elsewhere, route.TCP, tcp)
	write(t, modest, "hello")
	r.eventually("another's is kept", func() bool { return r.server.Held.Used() == most+5 })
	// Datagrams have no sender that could wait.
	write(t, from(t, here, route.UDP, udp), "hello")
	r.eventually("one is dropped", func() bool { return r.metric("dormouse_resolver_dropped_datagrams_total", nil) == 1 })
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	expect(t, modest, "hello")
	expect(t, greedy, text)
	r.eventually("everything is given back", func() bool { return r.server.Held.Used() == 0 })
}

func TestASourceIsWhereALoadBalancerSaysThatTheClientIs(t *testing.T) {
	r := newRig(t)
	rules := guard.NewRules(nil, []string{"192.0.2.0/24"})
	rules.PerSource = guard.Limits{Connections: 1, Bytes: 1024}
	address := r.serve("game", route.TCP, guarded(rules))
	r.behind(here + "/32")
	connect := func(source string) net.Conn {
		c := from(t, here, route.TCP, address)
		write(t, c, header(t, 2, source, "198.51.100.1:25565")+"hello")
		return c
	}
	expectGone(t, connect("192.0.2.7:1"))
	if got := r.refused(proto.Denied); got != 1 {
		t.Errorf("%v were denied, want 1", got)
	}
	first := connect("203.0.113.1:1")
	r.queued(1)
	connect("203.0.113.1:2")
	r.eventually("the source's second is refused", func() bool { return r.refused(proto.SourceConnections) == 1 })
	connect("203.0.113.2:1")
	r.queued(2)
	r.held(2)
	// What was read with the header is the source's, too.
	go func() { _, _ = first.Write(make([]byte, 4096)) }()
	r.eventually("the source's part is used up", func() bool { return r.server.Held.Used() == 1024+5 })
	r.server.Close()
	if used := r.server.Held.Used(); used != 0 {
		t.Errorf("%d bytes are held still", used)
	}
}

func TestAHandshakeHasItsTime(t *testing.T) {
	r := newRig(t)
	r.route.Hold.Handshake = 50 * time.Millisecond
	c := dialTCP(t, r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft)))
	// A handshake with a long host name. A byte now and then doesn't make its time longer.
	write(t, c, "\xff\x3f\x00\x2f\xe8\x07")
	r.eventually("it is over", func() bool {
		_, err := io.WriteString(c, "a")
		return err != nil
	})
	r.eventually("it is counted", func() bool { return r.refused(proto.Unfinished) == 1 })
}

func TestAServicesFloodLeavesConnectionsToOthers(t *testing.T) {
	r := newRig(t, maxFilesOf(37))
	flooded := r.serve("game", route.TCP)
	for range 20 {
		dialTCP(t, flooded)
	}
	r.eventually("the rest is refused", func() bool { return r.refused(proto.TooManyConnections) == 4 })
	r.queued(16)
	other := r.route
	other.UID, other.Name, other.Service = "uid-2", "other", "other"
	number := freePort(t, route.TCP)
	other.Ports = []route.Port{{Name: "game", Network: route.TCP, Protocol: v1alpha1.ProtocolTCP, ResolverPort: int32(number), Probed: true}}
	r.server.Update(&other)
	dialTCP(t, fmt.Sprintf("%s:%d", here, number))
	r.eventually("another service's client is held", func() bool { return r.server.Clients() == 17 })
}
