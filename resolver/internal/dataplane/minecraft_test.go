package dataplane

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	minecraftwire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/proto/bedrock"
	"dormouse.dev/dormouse/resolver/internal/proto/quake3"
	"dormouse.dev/dormouse/resolver/internal/proto/source"
	"dormouse.dev/dormouse/resolver/internal/route"
)

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

// rawStatus is a status answer of a text.
func rawStatus(text string) []byte {
	packet := minecraftwire.AppendVarInt(minecraftwire.AppendVarInt(nil, 0), int32(len(text)))
	return minecraftwire.AppendFrame(nil, append(packet, text...))
}

// minecraftServer answers status requests and sends back all else.
func minecraftServer(s minecraftwire.Status) func(*net.TCPConn) {
	status, _ := minecraftwire.AppendStatus(nil, s)
	return statusServer(status)
}

// statusServer is one that answers with these bytes.
func statusServer(status []byte) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if strings.HasSuffix(string(buf[:n]), "\x01\x01\x00") {
			_, _ = c.Write(status)
			return
		}
		_, _ = c.Write(buf[:n])
		echo(c)
	}
}

func TestAMinecraftServerIsUpOnceItAnswersForItsStatus(t *testing.T) {
	whole, _ := minecraftwire.AppendStatus(nil, minecraftwire.Status{Capacity: 1})
	for name, tc := range map[string]struct {
		byConnect bool
		status    []byte
	}{
		"as a rule":                                    {status: whole},
		"though it hides who plays":                    {status: rawStatus(`{"version":{"name":"Paper 1.21.4","protocol":769},"description":"here"}`)},
		"though nobody can be here":                    {status: rawStatus(`{"version":{"name":"1.21.4","protocol":769},"players":{"online":-1,"max":-1}}`)},
		"unless the spec is content with a connection": {byConnect: true, status: whole},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft), func(p *route.Port) { p.ByConnect = tc.byConnect })
			login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
			server := freeAddress(t, route.TCP)
			var up atomic.Bool
			var connected, early atomic.Int32
			ready := statusServer(tc.status)
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
			if tc.byConnect {
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
