package dataplane

import (
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	bedrockwire "dormouse.dev/dormouse/internal/gameproto/bedrock"
	minecraftwire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	quake3wire "dormouse.dev/dormouse/internal/gameproto/quake3"
	sourcewire "dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/resolver/internal/proto"
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
