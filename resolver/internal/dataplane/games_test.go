package dataplane

import (
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	bedrockwire "dormouse.dev/dormouse/internal/gameproto/bedrock"
	minecraftwire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	quake3wire "dormouse.dev/dormouse/internal/gameproto/quake3"
	sourcewire "dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/bedrock"
	"dormouse.dev/dormouse/resolver/internal/proto/quake3"
	"dormouse.dev/dormouse/resolver/internal/proto/source"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/test/hexfile"
)

// recorded are the bytes of a client of a protocol.
func recorded(t testing.TB, protocol v1alpha1.Protocol, name string) string {
	t.Helper()
	b, err := hexfile.Read(filepath.Join("..", "proto", string(protocol), "testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// speaks makes a port one of a game, with answers that all protocols have.
func speaks(protocol v1alpha1.Protocol) func(*route.Port) {
	return func(p *route.Port) {
		p.Protocol = protocol
		p.Answers = proto.Answers{Asleep: "it sleeps", Waking: "it wakes since {elapsed}", MaxPlayers: 7, Version: "1.20.4", Protocol: 765}
	}
}

func (r *rig) refused(reason proto.Reason) float64 {
	return r.metric("dormouse_resolver_refused_clients_total", map[string]string{"reason": string(reason)})
}

func (r *rig) answered() float64 { return r.metric("dormouse_resolver_answered_queries_total", nil) }

// undisturbed reports whether nobody was woken, and nobody is carried.
func (r *rig) undisturbed() {
	r.t.Helper()
	if n := r.operator.count(); n != 0 || r.server.Clients() != 0 {
		r.t.Errorf("%d wake calls, and %d clients are carried; want none", n, r.server.Clients())
	}
}

// readFrame reads one packet of Minecraft, without its length.
func readFrame(t testing.TB, c net.Conn) []byte {
	t.Helper()
	var got []byte
	for {
		one := make([]byte, 1)
		if _, err := io.ReadFull(c, one); err != nil {
			t.Fatalf("reading a packet: %v after %q", err, got)
		}
		got = append(got, one[0])
		if length, size, err := minecraftwire.ParseFrameLength(got); err == nil && len(got) == size+length {
			return got[size:]
		}
	}
}

func minecraftStatus(t testing.TB, c net.Conn) minecraftwire.Status {
	t.Helper()
	s, err := minecraftwire.ParseStatus(readFrame(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const minecraftPing = "\x09\x01\x00\x00\x00\x00\x00\x00\x04\xd2"

func TestMinecraftsServerListIsAnsweredAndWakesNothing(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft))
	status := recorded(t, v1alpha1.ProtocolMinecraft, "status_765")
	for name, chunks := range map[string][]string{
		"at once": {status + minecraftPing}, "byte by byte": strings.Split(status+minecraftPing, ""),
	} {
		t.Run(name, func(t *testing.T) {
			c := dialTCP(t, address)
			for _, chunk := range chunks {
				write(t, c, chunk)
			}
			want := minecraftwire.Status{Version: "1.20.4", Protocol: 765, Capacity: 7, Description: "it sleeps"}
			if got := minecraftStatus(t, c); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			expect(t, c, minecraftPing)
			expectEnd(t, c)
		})
	}
	legacy := dialTCP(t, address)
	write(t, legacy, "\xfe\x01")
	if got, err := io.ReadAll(legacy); err != nil || got[0] != 0xff {
		t.Errorf("a legacy ping got %q, %v", got, err)
	}
	r.undisturbed()
	// The last is counted once it is written.
	r.eventually("five queries are counted", func() bool { return r.answered() == 5 })
	// Since when it wakes is told, too.
	r.change(func(rt *route.Route) {
		rt.Phase, rt.PhaseSince = v1alpha1.PhaseWaking, time.Now().Add(-65*time.Second)
	})
	c := dialTCP(t, address)
	write(t, c, status)
	if got := minecraftStatus(t, c).Description; !strings.HasPrefix(got, "it wakes since 1m") {
		t.Errorf("while it wakes the list shows %q", got)
	}
	r.undisturbed()
}

func TestMinecraftsLoginWakesAndReachesTheServerAsItWasSent(t *testing.T) {
	for _, name := range []string{"login_47", "login_760", "login_769", "login_forge"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft))
			login := recorded(t, v1alpha1.ProtocolMinecraft, name)
			c := dialTCP(t, address)
			write(t, c, login[:len(login)-1])
			r.never("half a login is held", 20*time.Millisecond, func() bool { return r.sessions().Queued > 0 })
			r.undisturbed()
			write(t, c, login[len(login)-1:]+"more")
			r.queued(1)
			r.eventually("the operator is asked", func() bool { return r.operator.count() > 0 })
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, minecraftServer(minecraftwire.Status{Capacity: 1}))
			r.backend(server, true)
			expect(t, c, login+"more")
		})
	}
}

// minecraftServer answers status requests and sends back all else.
func minecraftServer(s minecraftwire.Status) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if strings.HasSuffix(string(buf[:n]), "\x01\x01\x00") {
			answer, _ := minecraftwire.AppendStatus(nil, s)
			_, _ = c.Write(answer)
			return
		}
		_, _ = c.Write(buf[:n])
		echo(c)
	}
}

func TestAMinecraftServerIsUpOnceItAnswersForItsStatus(t *testing.T) {
	for name, byConnect := range map[string]bool{"as a rule": false, "unless the spec is content with a connection": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft), func(p *route.Port) { p.ByConnect = byConnect })
			login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
			server := freeAddress(t, route.TCP)
			var up atomic.Bool
			var connected, early atomic.Int32
			ready := minecraftServer(minecraftwire.Status{Capacity: 1})
			listenTCP(t, server, func(c *net.TCPConn) {
				connected.Add(1)
				if up.Load() {
					ready(c)
					return
				}
				buf := make([]byte, 4096)
				if n, _ := c.Read(buf); strings.HasPrefix(login, string(buf[:n])) {
					early.Add(1)
				}
			})
			c := dialTCP(t, address)
			write(t, c, login)
			r.queued(1)
			r.backend(server, true)
			if byConnect {
				r.eventually("the player is sent to the server at once", func() bool { return early.Load() > 0 })
				return
			}
			r.eventually("the server is asked again and again", func() bool { return connected.Load() > 3 })
			if early.Load() > 0 {
				t.Error("a player was sent to a server that lets nobody in")
			}
			up.Store(true)
			expect(t, c, login)
		})
	}
}

func TestWhatAServerTellsOfItselfIsToldWhileItSleeps(t *testing.T) {
	const picture = "data:image/png;base64,AAAA"
	own := proto.Answers{Version: "1.21.4", Protocol: 769, MaxPlayers: 33, Favicon: picture, Map: "burrow", Game: "Dormice", Folder: "mice", AppID: 9}
	status := recorded(t, v1alpha1.ProtocolMinecraft, "status_765")
	asleep := func(t *testing.T, r *rig, address string) minecraftwire.Status {
		r.phase(v1alpha1.PhaseAsleep)
		c := dialTCP(t, address)
		write(t, c, status)
		return minecraftStatus(t, c)
	}
	served := minecraftwire.Status{Version: own.Version, Protocol: 769, Capacity: 33, Favicon: picture}
	want := served
	want.Description = "Asleep. Join to wake it up."
	game := func(p *route.Port) { p.Protocol = v1alpha1.ProtocolMinecraft }
	queried := func(r *rig) func() bool {
		return func() bool {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			for _, sv := range r.server.services {
				for _, p := range sv.ports {
					return p.Learnt() != proto.Answers{}
				}
			}
			return false
		}
	}
	t.Run("after a wake", func(t *testing.T) {
		r := newRig(t)
		address := r.serve("game", route.TCP, game)
		server := freeAddress(t, route.TCP)
		listenTCP(t, server, minecraftServer(served))
		c := dialTCP(t, address)
		login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
		write(t, c, login)
		r.backend(server, true)
		expect(t, c, login)
		if got := asleep(t, r, address); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	t.Run("of one that nobody had to wake", func(t *testing.T) {
		r := newRig(t)
		address := r.serve("game", route.TCP, game, probed)
		server := freeAddress(t, route.TCP)
		listenTCP(t, server, minecraftServer(served))
		r.backend(server, true)
		r.phase(v1alpha1.PhaseAwake)
		r.eventually("the server is asked", queried(r))
		if got := asleep(t, r, address); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	t.Run("but for what the spec says", func(t *testing.T) {
		r := newRig(t)
		address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft), probed)
		server := freeAddress(t, route.TCP)
		listenTCP(t, server, minecraftServer(served))
		r.backend(server, true)
		r.phase(v1alpha1.PhaseAwake)
		r.eventually("the server is asked", queried(r))
		want := minecraftwire.Status{Version: "1.20.4", Protocol: 765, Capacity: 7, Description: "it sleeps", Favicon: picture}
		if got := asleep(t, r, address); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	for protocol, of := range map[v1alpha1.Protocol]struct {
		module proto.Protocol
		want   proto.Answers
	}{
		v1alpha1.ProtocolBedrock: {bedrock.Protocol{}, proto.Answers{Version: own.Version, Protocol: 769, MaxPlayers: 33, Map: "burrow"}},
		v1alpha1.ProtocolSource:  {source.New(), proto.Answers{Version: own.Version, MaxPlayers: 33, Map: "burrow", Game: "Dormice", Folder: "mice", AppID: 9}},
		v1alpha1.ProtocolQuake3:  {quake3.Protocol{}, proto.Answers{Protocol: 769, MaxPlayers: 33, Map: "burrow", Game: "Dormice"}},
	} {
		t.Run("in "+string(protocol), func(t *testing.T) {
			r := newRig(t)
			r.serve("game", route.UDP, func(p *route.Port) { p.Protocol = protocol })
			c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				buf := make([]byte, 2048)
				for {
					n, from, err := c.ReadFromUDPAddrPort(buf)
					if err != nil {
						return
					}
					v := of.module.Inspect(buf[:n], proto.Client{Service: &proto.Service{Answers: own}, Source: from, Now: time.Now()})
					_, _ = c.WriteToUDPAddrPort(v.Answer, from)
				}
			}()
			t.Cleanup(func() { _ = c.Close(); <-done })
			r.backend(c.LocalAddr().String(), true)
			r.phase(v1alpha1.PhaseAwake)
			r.eventually("the server is asked", queried(r))
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			for _, p := range r.server.services["uid-1"].ports {
				if p.Learnt() != of.want {
					t.Errorf("got %+v, want %+v", p.Learnt(), of.want)
				}
			}
		})
	}
}

func TestAServerThatIsUpAnswersForItself(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
	status := recorded(t, v1alpha1.ProtocolMinecraft, "status_765")
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	r.phase(v1alpha1.PhaseAwake)
	c := dialTCP(t, address)
	write(t, c, status)
	expect(t, c, status)
	// One that is awake and has no server that could is answered for.
	r.backend(server, false)
	c = dialTCP(t, address)
	write(t, c, status)
	if got := minecraftStatus(t, c).Description; got != "it wakes since 0s" {
		t.Errorf("got %q", got)
	}
	// So is one that is about to sleep, or the list would keep it awake.
	r.backend(server, true)
	r.phase(v1alpha1.PhaseFallingAsleep)
	c = dialTCP(t, address)
	write(t, c, status)
	if got := minecraftStatus(t, c).Description; got != "it sleeps" {
		t.Errorf("got %q", got)
	}
	if n := r.operator.count(); n != 0 {
		t.Errorf("%d wake calls", n)
	}
}

func TestAPlayerOfMinecraftIsToldWhyThereIsNoServer(t *testing.T) {
	r := newRig(t)
	r.route.Hold.Timeout, r.route.Hold.MaxConnections = 100*time.Millisecond, 1
	address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft))
	login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
	first, second := dialTCP(t, address), dialTCP(t, address)
	write(t, first, login)
	r.queued(1)
	write(t, second, login)
	if got := string(readFrame(t, second)); !strings.Contains(got, "Too many players") {
		t.Errorf("in a full queue a player is told %q", got)
	}
	if got := string(readFrame(t, first)); !strings.Contains(got, "Join again") {
		t.Errorf("a player who waited is told %q", got)
	}
	expectEnd(t, first)
	for _, reason := range []proto.Reason{proto.TimedOut, proto.QueueFull} {
		if got := r.refused(reason); got != 1 {
			t.Errorf("%v were refused for %s, want 1", got, reason)
		}
	}
}

// impatient is a protocol whose clients give up soon.
type impatient struct{ lines }

func (impatient) HoldAtMost() time.Duration { return 50 * time.Millisecond }

func TestNobodyIsHeldForLongerThanTheProtocolsClientsWait(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"where the hold is longer": time.Hour, "where it has no end": 0} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				o.Protocols = map[v1alpha1.Protocol]proto.Protocol{
					v1alpha1.ProtocolTCP: impatient{lines{"tcp"}}, v1alpha1.ProtocolUDP: impatient{lines{"udp"}},
				}
			})
			r.route.Hold.Timeout = timeout
			tcp, udp := r.serve("tcp", route.TCP), r.serve("udp", route.UDP)
			c := dialTCP(t, tcp)
			write(t, c, "login anna\n")
			expect(t, c, "sorry: timeout\n")
			d := dialUDP(t, udp)
			write(t, d, "login anna\n")
			hear(t, d, "sorry: timeout\n")
			r.queued(0)
		})
	}
}

func TestANonsensicalClientOfMinecraftIsRefused(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft))
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "\x00", strings.Repeat("\xff", 70_000)} {
		c := dialTCP(t, address)
		_, _ = io.WriteString(c, text)
		expectGone(t, c)
	}
	r.undisturbed()
	if got := r.refused(proto.Unwanted); got != 4 {
		t.Errorf("%v clients were refused, want 4", got)
	}
}

func TestAnythingWakesWhereTheSpecSaysSo(t *testing.T) {
	r := newRig(t)
	connect := func(p *route.Port) { p.WakeOnConnect = true }
	tcp := r.serve("tcp", route.TCP, speaks(v1alpha1.ProtocolMinecraft), connect)
	udp := r.serve("udp", route.UDP, speaks(v1alpha1.ProtocolBedrock), connect)
	write(t, dialTCP(t, tcp), recorded(t, v1alpha1.ProtocolMinecraft, "status_765"))
	write(t, dialUDP(t, udp), recorded(t, v1alpha1.ProtocolBedrock, "ping"))
	r.queued(2)
	if got := r.answered(); got != 0 {
		t.Errorf("%v queries were answered", got)
	}
}

// receive reads a datagram.
func receive(t testing.TB, c net.Conn) []byte {
	t.Helper()
	buf := make([]byte, 64<<10)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

func TestBedrocksPingsAreAnsweredAndRequestsWake(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP, speaks(v1alpha1.ProtocolBedrock))
	ping, request := recorded(t, v1alpha1.ProtocolBedrock, "ping"), recorded(t, v1alpha1.ProtocolBedrock, "request1")
	c := dialUDP(t, address)
	for range 3 {
		write(t, c, ping)
		if p, err := bedrockwire.ParsePong(receive(t, c)); err != nil || p.Status.Name != "it sleeps" || p.Status.Capacity != 7 {
			t.Fatalf("got %+v, %v", p, err)
		}
	}
	write(t, c, "nonsense")
	r.eventually("nonsense is refused", func() bool { return r.refused(proto.Unwanted) == 1 })
	r.undisturbed()
	write(t, c, request)
	r.queued(1)
	r.eventually("the operator is asked", func() bool { return r.operator.count() > 0 })
	r.phase(v1alpha1.PhaseWaking)
	// Who waits may still ask, and what it asks is not for the server.
	write(t, c, ping)
	if p, err := bedrockwire.ParsePong(receive(t, c)); err != nil || p.Status.Name != "it wakes since 0s" {
		t.Fatalf("got %+v, %v", p, err)
	}
	write(t, c, request)
	server := freeAddress(t, route.UDP)
	s := listenUDP(t, server)
	r.backend(server, true)
	hear(t, c, "re:"+request)
	hear(t, c, "re:"+request)
	r.phase(v1alpha1.PhaseAwake)
	write(t, c, ping)
	hear(t, c, "re:"+ping)
	s.mu.Lock()
	defer s.mu.Unlock()
	// The resolver itself has asked, too.
	s.got = slices.DeleteFunc(s.got, func(d string) bool { return strings.Contains(d, "dormouse") })
	if want := []string{request, request, ping}; !slices.Equal(s.got, want) {
		t.Errorf("the server got %d datagrams, want the requests and the last ping", len(s.got))
	}
}

func TestAFullQueueIsToldToBedrocksClients(t *testing.T) {
	r := newRig(t)
	r.route.Hold.MaxConnections = 1
	address := r.serve("game", route.UDP, speaks(v1alpha1.ProtocolBedrock))
	request := recorded(t, v1alpha1.ProtocolBedrock, "request1")
	write(t, dialUDP(t, address), request)
	r.queued(1)
	c := dialUDP(t, address)
	write(t, c, request)
	if got := receive(t, c); got[0] != 0x14 || len(got) != 25 {
		t.Errorf("got %x", got)
	}
	r.queued(1)
}

func TestSourcesInfoIsForWhoAnswersTheChallengeAndAllElseWakes(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP, speaks(v1alpha1.ProtocolSource))
	c := dialUDP(t, address)
	write(t, c, recorded(t, v1alpha1.ProtocolSource, "info_first"))
	first, err := sourcewire.ParseAnswer(receive(t, c))
	if err != nil || first.Challenge == nil {
		t.Fatalf("got %+v, %v", first, err)
	}
	write(t, c, string(sourcewire.AppendInfoRequest(nil, first.Challenge)))
	second, err := sourcewire.ParseAnswer(receive(t, c))
	if err != nil || second.Info == nil || second.Info.Name != "it sleeps" || second.Info.Capacity != 7 {
		t.Fatalf("got %+v, %v", second, err)
	}
	// Another client's challenge is nobody else's.
	other := dialUDP(t, address)
	write(t, other, string(sourcewire.AppendInfoRequest(nil, first.Challenge)))
	if a, err := sourcewire.ParseAnswer(receive(t, other)); err != nil || a.Challenge == nil {
		t.Errorf("got %+v, %v", a, err)
	}
	write(t, c, "\xff\xff\xff\xffU\xff\xff\xff\xff")
	if a, err := sourcewire.ParseAnswer(receive(t, c)); err != nil || a.Challenge == nil {
		t.Errorf("got %+v, %v", a, err)
	}
	r.undisturbed()
	write(t, c, "a game's own")
	r.queued(1)
}

func TestQuake3sQueriesAreAnsweredAndAllElseWakes(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.UDP, speaks(v1alpha1.ProtocolQuake3))
	c := dialUDP(t, address)
	write(t, c, recorded(t, v1alpha1.ProtocolQuake3, "getstatus"))
	status, err := quake3wire.ParseStatus(receive(t, c))
	if err != nil || status.Info["sv_hostname"] != "it sleeps" || status.Info["challenge"] != "rabbit" {
		t.Fatalf("got %+v, %v", status, err)
	}
	write(t, c, recorded(t, v1alpha1.ProtocolQuake3, "getinfo"))
	info, err := quake3wire.ParseInfo(receive(t, c))
	if err != nil || info["hostname"] != "it sleeps" || info["sv_maxclients"] != "7" {
		t.Fatalf("got %+v, %v", info, err)
	}
	r.undisturbed()
	challenge := recorded(t, v1alpha1.ProtocolQuake3, "getchallenge")
	write(t, c, challenge)
	r.queued(1)
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	hear(t, c, "re:"+challenge)
}

func TestGarbageOfEverySizeIsSurvived(t *testing.T) {
	r := newRig(t)
	r.route.Hold.MaxConnections = 4
	addresses := map[v1alpha1.Protocol]string{}
	for _, p := range []v1alpha1.Protocol{v1alpha1.ProtocolBedrock, v1alpha1.ProtocolSource, v1alpha1.ProtocolQuake3} {
		addresses[p] = r.serve(string(p), route.UDP, speaks(p))
	}
	for _, address := range addresses {
		c := dialUDP(t, address)
		for _, size := range []int{0, 1, 4, 5, 9, 18, 25, 33, 1400, 65_507} {
			for _, fill := range []string{"\x00", "\x01", "\x05", "\xff"} {
				write(t, c, strings.Repeat(fill, size))
			}
		}
	}
	// All are alive: they answer.
	for p, query := range map[v1alpha1.Protocol]string{
		v1alpha1.ProtocolBedrock: recorded(t, v1alpha1.ProtocolBedrock, "ping"),
		v1alpha1.ProtocolSource:  recorded(t, v1alpha1.ProtocolSource, "info_first"),
		v1alpha1.ProtocolQuake3:  recorded(t, v1alpha1.ProtocolQuake3, "getinfo"),
	} {
		c := dialUDP(t, addresses[p])
		write(t, c, query)
		if got := receive(t, c); len(got) < 9 {
			t.Errorf("%s answers %q", p, got)
		}
	}
}
