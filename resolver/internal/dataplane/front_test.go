package dataplane

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// shared is a front with services behind it.
type shared struct {
	*rig
	key     route.FrontKey
	address string
	routes  map[string]*route.Route
}

func newShared(t testing.TB, more ...rigOption) *shared {
	number := freePort(t, route.TCP)
	return &shared{
		rig: newRig(t, more...), key: route.FrontKey{Namespace: "edge", Service: "mc", ResolverPort: int32(number)},
		address: fmt.Sprintf("127.0.0.1:%d", number), routes: map[string]*route.Route{},
	}
}

// service puts a service behind the front, with the hosts that lead there.
func (s *shared) service(name string, protocol v1alpha1.Protocol, hosts ...string) {
	s.t.Helper()
	r := s.route
	r.UID, r.Name, r.Service = types.UID("uid-"+name), name, name
	p := route.Port{Name: "game", Network: route.TCP, Protocol: protocol, ResolverPort: int32(freePort(s.t, route.TCP)), ByConnect: true}
	p.Answers.Asleep = name + " sleeps"
	r.Ports = []route.Port{p}
	r.Front = &route.Front{FrontKey: s.key, Port: "game", Hosts: hosts}
	s.routes[name] = &r
	s.show(name, func(*route.Route) {})
	if d := s.described(name); !d.Listening {
		s.t.Fatalf("the front does not listen: %s", d.Error)
	}
}

// show shows the data plane a new version of a service's route.
func (s *shared) show(name string, change func(*route.Route)) {
	r := *s.routes[name]
	r.Ports = append([]route.Port(nil), r.Ports...)
	change(&r)
	s.routes[name] = &r
	s.server.Update(&r)
}

// up gives a service a server.
func (s *shared) up(name, server string) {
	s.show(name, func(r *route.Route) {
		r.Phase = v1alpha1.PhaseAwake
		r.Ports[0].Backends = []route.Backend{{Address: netip.MustParseAddrPort(server), Serving: true}}
	})
}

// described is what is told of a service's part of the front.
func (s *shared) described(name string) informerapi.RoutePort {
	for _, r := range s.server.Routes("uid-" + name).Routes {
		for _, p := range r.Ports {
			if p.Front != "" {
				return p
			}
		}
	}
	return informerapi.RoutePort{}
}

// sessionsOf is what a service tells of its clients.
func (s *shared) sessionsOf(name string) informerapi.Sessions {
	for _, c := range s.server.Sessions("uid-" + name).Services {
		return c
	}
	return informerapi.Sessions{}
}

func (s *shared) refused(service string, reason proto.Reason) float64 {
	return s.metric("dormouse_resolver_refused_clients_total", map[string]string{"service": service, "reason": string(reason)})
}

// login is what a player sends who typed a host.
func login(host string) string {
	packet := "\x00\xfd\x05" + string([]byte{byte(len(host))}) + host + "\x63\xdd\x02"
	return string([]byte{byte(len(packet))}) + packet + "\x07\x00\x05Hazel"
}

// status is what a server list sends.
func status(host string) string {
	packet := "\x00\xfd\x05" + string([]byte{byte(len(host))}) + host + "\x63\xdd\x01"
	return string([]byte{byte(len(packet))}) + packet + "\x01\x00"
}

// hello is a TLS client's, with a name of the length of play.example.com.
func hello(t testing.TB, host string) string {
	t.Helper()
	if len(host) != len("play.example.com") {
		t.Fatalf("a name of %d bytes", len(host))
	}
	return strings.Replace(recorded(t, v1alpha1.ProtocolTLS, "go"), "play.example.com", host, 1)
}

func TestAFrontsClientsReachTheServiceThatTheyNameWithoutLosingAByte(t *testing.T) {
	s := newShared(t)
	s.service("survival", v1alpha1.ProtocolMinecraft, "survival.example.com", "*.survival.example.com")
	s.service("creative", v1alpha1.ProtocolMinecraft, "creative.example.com")
	s.service("lobby", v1alpha1.ProtocolTLS, "lobb.example.com")

	// The one that sleeps is woken, and only it.
	asleep := dialTCP(t, s.address)
	for chunk := range strings.SplitSeq(login("Survival.Example.com.\x00FML\x00"), "") {
		write(t, asleep, chunk)
	}
	s.eventually("the client is held", func() bool { return s.sessionsOf("survival").Queued == 1 })
	s.eventually("the operator is asked", func() bool { return s.operator.count() > 0 })
	for _, call := range s.operator.all() {
		if call.Svc != "survival" || call.Namespace != "games" {
			t.Errorf("%+v is woken", call)
		}
	}
	// One that is awake is played at once, by its own protocol or inside TLS.
	for name, said := range map[string]string{
		"creative": login("creative.example.com///192.0.2.7:1234///1700000000"), "lobby": hello(t, "lobb.EXAMPLE.com") + "more",
	} {
		server := freeAddress(t, route.TCP)
		listenTCP(t, server, echo)
		s.up(name, server)
		c := dialTCP(t, s.address)
		write(t, c, said)
		expect(t, c, said)
		write(t, c, "and on")
		expect(t, c, "and on")
		if got := s.sessionsOf(name); got.Sessions != 1 || got.Queued != 0 {
			t.Errorf("%s carries %+v, want one session", name, got)
		}
		_ = c.CloseWrite()
		expectEnd(t, c)
	}
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	s.up("survival", server)
	expect(t, asleep, login("Survival.Example.com.\x00FML\x00"))
	if got := s.sessionsOf("survival"); got.Sessions != 1 {
		t.Errorf("survival carries %+v, want one session", got)
	}
	below := dialTCP(t, s.address)
	write(t, below, login("a.b.survival.example.com"))
	expect(t, below, login("a.b.survival.example.com"))

	for name, want := range map[string]float64{"survival": 2, "creative": 1, "lobby": 1, "mc": 0} {
		if got := s.metric("dormouse_resolver_clients_total", map[string]string{"service": name}); got != want {
			t.Errorf("%v clients of %s, want %v", got, name, want)
		}
	}
}

func TestServerListsBehindAFrontShowTheServiceThatTheyName(t *testing.T) {
	s := newShared(t)
	s.service("survival", v1alpha1.ProtocolMinecraft, "survival.example.com")
	s.service("creative", v1alpha1.ProtocolMinecraft, "creative.example.com")
	for _, name := range []string{"survival", "creative"} {
		c := dialTCP(t, s.address)
		write(t, c, status(name+".example.com")+minecraftPing)
		if got := minecraftStatus(t, c).Description; got != name+" sleeps" {
			t.Errorf("the list shows %q for %s", got, name)
		}
		expect(t, c, minecraftPing)
		expectEnd(t, c)
	}
	s.undisturbed()
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("awake"))
	s.up("survival", server)
	c := dialTCP(t, s.address)
	write(t, c, status("survival.example.com"))
	expect(t, c, "awake"+status("survival.example.com"))
}

func TestWhoeverNamesNobodyIsTurnedAwayAndWakesNothing(t *testing.T) {
	s := newShared(t)
	s.service("survival", v1alpha1.ProtocolMinecraft, "survival.example.com")
	s.service("lobby", v1alpha1.ProtocolTLS, "play.example.com")
	noSuch := func(t *testing.T, got []byte) {
		if !bytes.Contains(got, []byte("There is no server by this name here.")) {
			t.Errorf("it is told %q", got)
		}
	}
	for name, c := range map[string]struct {
		said     string
		answered func(*testing.T, []byte)
		reason   proto.Reason
	}{
		"a player":                         {login("nobody.example.com"), noSuch, proto.UnknownName},
		"a server list":                    {status("nobody.example.com") + minecraftPing, noSuch, proto.UnknownName},
		"a player who names nothing":       {login(""), noSuch, proto.UnknownName},
		"a player who names a TLS service": {login("play.example.com"), noSuch, proto.UnknownName},
		"a list that only knows addresses": {"\xfe\x01\xfa", func(t *testing.T, got []byte) {
			if len(got) == 0 || got[0] != 0xff {
				t.Errorf("it is told %q", got)
			}
		}, proto.UnknownName},
		"a TLS client": {hello(t, "none.example.com"), func(t *testing.T, got []byte) {
			if string(got) != "\x15\x03\x03\x00\x02\x02\x70" {
				t.Errorf("it is told %x, want the alert unrecognized_name", got)
			}
		}, proto.UnknownName},
		"one that speaks SSH": {"SSH-2.0-x\r\n", nil, proto.Unwanted},
		"one that speaks HTTP": {"GET / HTTP/1.1\r\n\r\n", func(t *testing.T, got []byte) {
			if !bytes.HasPrefix(got, []byte("HTTP/1.1 404 Not Found\r\n")) {
				t.Errorf("it is told %q", got)
			}
		}, proto.UnknownName},
		"one that never says": {"\x16\x03\x01\x40\x00\x01\x00\x3f\xf0" + strings.Repeat("x", proto.MaxHead), nil, proto.Unfinished},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.refused("mc", c.reason)
			conn := dialTCP(t, s.address)
			write(t, conn, c.said)
			if c.answered == nil {
				expectGone(t, conn)
			} else {
				got, err := io.ReadAll(conn)
				if err != nil {
					t.Fatal(err)
				}
				c.answered(t, got)
			}
			if got := s.refused("mc", c.reason) - before; got != 1 {
				t.Errorf("%v clients refused as %s, want 1", got, c.reason)
			}
		})
	}
	s.undisturbed()
	for _, name := range []string{"survival", "lobby"} {
		if got := s.metric("dormouse_resolver_clients_total", map[string]string{"service": name}); got != 0 {
			t.Errorf("%v clients of %s, want none", got, name)
		}
	}
}

func TestWhoeverNamesNobodyReachesTheServiceForTheRest(t *testing.T) {
	s := newShared(t)
	s.service("survival", v1alpha1.ProtocolMinecraft, "survival.example.com")
	s.service("lobby", v1alpha1.ProtocolMinecraft, route.AllHosts)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, tag("lobby"))
	s.up("lobby", server)
	for _, host := range []string{"nobody.example.com", "", "*", "*.survival.example.com"} {
		c := dialTCP(t, s.address)
		write(t, c, login(host))
		expect(t, c, "lobby"+login(host))
	}
	named := dialTCP(t, s.address)
	write(t, named, login("survival.example.com"))
	s.eventually("who names a service waits for it", func() bool { return s.sessionsOf("survival").Queued == 1 })
	// It is for its own protocol alone.
	secret := dialTCP(t, s.address)
	write(t, secret, hello(t, "none.example.com"))
	if got, _ := io.ReadAll(secret); string(got) != "\x15\x03\x03\x00\x02\x02\x70" {
		t.Errorf("a client of TLS is told %x", got)
	}
}

// terms puts a service behind the front whose owner trusts load balancers.
func (s *shared) terms(name string, change func(*route.Front)) {
	s.show(name, func(r *route.Route) {
		f := *r.Front
		change(&f)
		r.Front = &f
	})
}

func TestAFrontHearsFromItsLoadBalancerWhereClientsAre(t *testing.T) {
	book, logs := withLog(t)
	s := newShared(t, logs)
	s.service("lobby", v1alpha1.ProtocolMinecraft, "lobby.example.com")
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	s.terms("lobby", func(f *route.Front) {
		f.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}
		f.Guard = guard.NewRules(nil, []string{"203.0.113.0/24"})
		f.Guard.SourceIPsPreserved = true
	})
	through := func(source, said string) *net.TCPConn {
		c := dialFrom(t, "127.0.0.3", s.address)
		write(t, c, header(t, 2, source, "198.51.100.2:25565")+said)
		return c
	}
	// By the header one may wake the service, and another may not.
	expectGone(t, through("203.0.113.9:40001", login("lobby.example.com")))
	if n := s.refused("lobby", proto.Denied); n != 1 {
		t.Errorf("%v clients denied, want 1", n)
	}
	held := through("192.0.2.7:40002", login("lobby.example.com"))
	s.eventually("the client is held", func() bool { return s.sessionsOf("lobby").Queued == 1 })
	s.up("lobby", server)
	expect(t, held, login("lobby.example.com"))
	_ = held.Close()
	s.eventually("the log tells where it was", func() bool {
		for _, l := range book.lines(t) {
			if l.Client == "192.0.2.7:40002" {
				return l.Front == "edge/mc" && l.Service == "lobby" && l.Server == server
			}
		}
		return false
	})
	// Who isn't trusted begins without a header, and who is begins with one.
	direct := dialTCP(t, s.address)
	write(t, direct, login("lobby.example.com"))
	expect(t, direct, login("lobby.example.com"))
	headless := dialFrom(t, "127.0.0.3", s.address)
	write(t, headless, login("lobby.example.com"))
	expectGone(t, headless)
	if n := s.refused("mc", proto.NoProxyHeader); n != 1 {
		t.Errorf("%v clients refused without a header, want 1", n)
	}
	// A look whether the port is open is no client.
	look := dialFrom(t, "127.0.0.3", s.address)
	write(t, look, localHeader)
	expectGone(t, look)
}

func TestAFrontBoundsWhatASourceHas(t *testing.T) {
	s := newShared(t)
	s.service("lobby", v1alpha1.ProtocolMinecraft, "lobby.example.com")
	s.service("arena", v1alpha1.ProtocolMinecraft, "arena.example.com")
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	for _, name := range []string{"lobby", "arena"} {
		s.up(name, server)
		s.terms(name, func(f *route.Front) { f.MaxSessionsPerSource = 2 })
	}
	plays := func(source, host string) *net.TCPConn {
		c := dialFrom(t, source, s.address)
		write(t, c, login(host))
		expect(t, c, login(host))
		return c
	}
	first := plays("127.0.0.3", "lobby.example.com")
	plays("127.0.0.3", "arena.example.com")
	third := dialFrom(t, "127.0.0.3", s.address)
	expectGone(t, third)
	if n := s.refused("mc", proto.SourceSessions); n != 1 {
		t.Errorf("%v clients refused, want 1", n)
	}
	plays("127.0.0.4", "lobby.example.com")
	_ = first.Close()
	s.eventually("the first has made room", func() bool {
		c := dialFrom(t, "127.0.0.3", s.address)
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, login("lobby.example.com"))
		_, err := io.ReadFull(c, make([]byte, len(login("lobby.example.com"))))
		return err == nil
	})
}

func TestAFrontIsThereAsLongAsANameLeadsSomewhere(t *testing.T) {
	s := newShared(t)
	s.service("survival", v1alpha1.ProtocolMinecraft, "a.example.com")
	s.service("creative", v1alpha1.ProtocolMinecraft, "b.example.com")
	want := informerapi.RoutePort{Name: "game", Protocol: "tcp", Port: s.key.ResolverPort, Front: "edge/mc", Listening: true}
	for _, name := range []string{"survival", "creative"} {
		if got := s.described(name); got != want {
			t.Errorf("of %s is told %+v, want %+v", name, got, want)
		}
	}
	s.show("survival", func(r *route.Route) { r.Front = nil })
	if got := s.described("survival"); got.Front != "" {
		t.Errorf("of what is no part of it is told %+v", got)
	}
	unknown := dialTCP(t, s.address)
	write(t, unknown, login("a.example.com"))
	if got, _ := io.ReadAll(unknown); !bytes.Contains(got, []byte("no server by this name")) {
		t.Errorf("who names a service that left is told %q", got)
	}
	s.server.Remove("uid-creative")
	if len(s.server.fronts) != 0 || s.server.named[types.NamespacedName{Namespace: "edge", Name: "mc"}] != 0 {
		t.Errorf("%d fronts are left", len(s.server.fronts))
	}
	// The port is free for something else.
	listenTCP(t, s.address, echo)
	if got := s.metric("dormouse_resolver_refused_clients_total", map[string]string{"service": "mc"}); got != 0 {
		t.Error("series of the front are left")
	}
}

// Routes change all the time, and no client may be told meanwhile that nobody has
// its name.
func TestChangesOfARouteHideNoName(t *testing.T) {
	s := newShared(t)
	s.service("survival", v1alpha1.ProtocolMinecraft, "a.example.com", "b.example.com")
	var changes sync.WaitGroup
	stop := make(chan struct{})
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				s.show("survival", func(r *route.Route) {
					r.PhaseSince = time.Unix(int64(i), 0)
					r.Front = &route.Front{FrontKey: s.key, Port: "game", Hosts: []string{"a.example.com", fmt.Sprintf("n%d.example.com", i)}}
				})
			}
		}
	})
	for range 200 {
		c := dialTCP(t, s.address)
		write(t, c, status("a.example.com"))
		if got := minecraftStatus(t, c).Description; got != "survival sleeps" {
			t.Errorf("the list shows %q", got)
		}
		_ = c.Close()
	}
	close(stop)
	changes.Wait()
}

func TestTLSOnAPortOfItsOwnWakesByAHelloAlone(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, func(p *route.Port) { p.Protocol, p.ByConnect = v1alpha1.ProtocolTLS, true })
	for _, noise := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\x02\x02\x00", "SSH-2.0-x\r\n"} {
		c := dialTCP(t, address)
		write(t, c, noise)
		expectGone(t, c)
	}
	silent := dialTCP(t, address)
	half := dialTCP(t, address)
	said := recorded(t, v1alpha1.ProtocolTLS, "openssl_split")
	write(t, half, said[:700])
	if got := r.refused(proto.Unwanted); got != 3 {
		t.Errorf("%v clients refused as unwanted, want 3", got)
	}
	r.undisturbed()
	// A name isn't needed here.
	unnamed := dialTCP(t, address)
	write(t, unnamed, recorded(t, v1alpha1.ProtocolTLS, "openssl_noname"))
	r.queued(1)
	write(t, half, said[700:])
	r.queued(2)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	expect(t, half, said)
	expect(t, unnamed, recorded(t, v1alpha1.ProtocolTLS, "openssl_noname"))
	_ = silent.Close()
}

// What the front's owner says is in each ElasticService's status, and one of them may not
// have heard the last of it: it changes nothing for the others, whenever it is shown.
func TestAFrontGoesByTheNewestSettings(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	most := func(want int32) {
		t.Helper()
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		f := s.server.fronts[s.key]
		if got := f.MaxSessionsPerSource(); got != want {
			t.Errorf("a source may have %d sessions, want %d", got, want)
		}
		if len(f.parts) > 2 {
			t.Errorf("there are %d parts of two services", len(f.parts))
		}
	}
	says := func(name string, version uint64, sessions int32) {
		s.terms(name, func(f *route.Front) { f.SettingsVersion, f.MaxSessionsPerSource = version, sessions })
	}
	for _, name := range []string{"old", "new"} {
		s.service(name, v1alpha1.ProtocolMinecraft, name+".example.com")
	}
	says("old", 9, 1)
	most(1)
	says("new", 10, 2)
	most(2)
	says("old", 9, 1) // shown again, for whatever reason
	most(2)
	says("new", 11, 3)
	most(3)
	says("old", 12, 4)
	most(4)
	s.show("old", func(r *route.Route) { r.Front = nil })
	most(3)
}
