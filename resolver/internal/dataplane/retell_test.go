package dataplane

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	bedrockwire "dormouse.dev/dormouse/internal/gameproto/bedrock"
	minecraftwire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	quake3wire "dormouse.dev/dormouse/internal/gameproto/quake3"
	sourcewire "dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// listedServer answers server lists with how often it was asked, and echoes whoever
// plays.
func listedServer(t *testing.T, address string) *atomic.Int64 {
	asked := &atomic.Int64{}
	listenTCP(t, address, func(c *net.TCPConn) {
		in := make([]byte, 4096)
		n, err := c.Read(in)
		if err != nil {
			return
		}
		if bytes.HasSuffix(in[:n], []byte("\xdd\x02\x07\x00\x05Hazel")) {
			_, _ = c.Write(in[:n])
			echo(c)
			return
		}
		count := asked.Add(1)
		status, err := minecraftwire.AppendStatus(nil, minecraftwire.Status{Version: "1.21", Protocol: 765, Players: int(count), Capacity: 20, Description: "awake"})
		if err != nil {
			t.Error(err)
		}
		if bytes.HasSuffix(in[:n], []byte(minecraftPing)) {
			status = append(status, minecraftPing...)
		}
		_, _ = c.Write(status)
		echo(c)
	})
	return asked
}

func TestAStormOfServerListsCostsTheGameOneQueryASecond(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.server.QueryTimeout = time.Minute
	address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
	server := freeAddress(t, route.TCP)
	asked := listedServer(t, server)
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	began := time.Now()
	var lists sync.WaitGroup
	for i := range 40 {
		lists.Go(func() {
			for range 25 {
				c := dialTCP(t, address)
				text := status("play.example.com")
				if i%2 == 0 {
					// A proxy before it says of each client where that is.
					text = status(fmt.Sprintf("play.example.com///192.0.2.7:%d///1700000000", 10000+i))
				}
				write(t, c, text+minecraftPing)
				if got := minecraftStatus(t, c); got.Description != "awake" || got.Players == 0 {
					t.Errorf("a list shows %+v", got)
				}
				expect(t, c, minecraftPing)
				expectEnd(t, c)
				_ = c.Close()
			}
		})
	}
	lists.Wait()
	took := time.Since(began)
	// And once when it came up.
	if n, most := asked.Load(), int64(took/service.FreshFor)+2; n > most {
		t.Errorf("1000 lists in %s cost the game %d queries, want %d at most", took, n, most)
	}
	if n := r.metric("dormouse_resolver_answered_queries_total", nil); n < 900 {
		t.Errorf("%v queries were answered in its place", n)
	}
	if !r.idleSince(began) {
		t.Error("lists keep the service awake")
	}
	// Who plays is told nothing of all that.
	player := dialTCP(t, address)
	write(t, player, login("play.example.com"))
	expect(t, player, login("play.example.com"))
}

// What players see is not older than a few seconds.
func TestAnAnswerThatIsToldAgainIsFresh(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
	server := freeAddress(t, route.TCP)
	asked := listedServer(t, server)
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	list := func() int {
		c := dialTCP(t, address)
		defer func() { _ = c.Close() }()
		write(t, c, status("play.example.com"))
		return minecraftStatus(t, c).Players
	}
	first := list()
	r.eventually("the list changes", func() bool { return list() > first })
	if n := int(asked.Load()); list() < n-1 {
		t.Errorf("the list is older than the answer before the last")
	}
	// Other names may have other answers, but not any number of them.
	before, began := asked.Load(), time.Now()
	for i := range 4 * service.MaxQuestions {
		c := dialTCP(t, address)
		write(t, c, status(fmt.Sprintf("n%d.example.com", i)))
		_ = minecraftStatus(t, c)
		_ = c.Close()
	}
	// As many each second ask themselves, and one for all others.
	seconds := int64(time.Since(began)/time.Second) + 1
	if n, most := asked.Load()-before, service.MaxQuestions+seconds*(service.MaxQuestions+1); n < service.MaxQuestions-1 || n > most {
		t.Errorf("%d questions cost %d queries in %d s, want %d to %d", 4*service.MaxQuestions, n, seconds, service.MaxQuestions-1, most)
	}
	// What was kept is given back with the port.
	if r.server.Held.Used() == 0 {
		t.Error("what is kept is charged to nobody")
	}
	r.server.Remove(r.route.UID)
	r.eventually("nothing is kept", func() bool { return r.server.Held.Used() == 0 })
}

func TestAServerThatDoesNotAnswerListsIsStillReached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	for range 3 {
		c := dialTCP(t, address)
		write(t, c, status("play.example.com"))
		expect(t, c, status("play.example.com"))
		_ = c.Close()
	}
}

func TestAStormOfUDPQueriesCostsTheGameOneASecond(t *testing.T) {
	t.Parallel()
	serves := func(answer func(query []byte, from netip.AddrPort) []byte) func(t *testing.T, address string) {
		return func(t *testing.T, address string) {
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				buf := make([]byte, 4096)
				for {
					n, from, err := c.ReadFromUDPAddrPort(buf)
					if err != nil {
						return
					}
					_, _ = c.WriteToUDPAddrPort(answer(buf[:n], from), from)
				}
			}()
		}
	}
	var asked [3]atomic.Int64
	ask := func(c net.Conn, query []byte) []byte {
		_, _ = c.Write(query)
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil {
			return nil
		}
		return buf[:n]
	}
	for name, tc := range map[string]struct {
		protocol v1alpha1.Protocol
		asked    *atomic.Int64
		serve    func(t *testing.T, address string)
		query    func(t *testing.T, c net.Conn, i int)
	}{
		"bedrock": {v1alpha1.ProtocolBedrock, &asked[0], serves(func(query []byte, _ netip.AddrPort) []byte {
			asked[0].Add(1)
			at, _ := bedrockwire.ParsePing(query)
			b, _ := bedrockwire.AppendPong(nil, bedrockwire.Pong{Time: at, GUID: 7, Status: bedrockwire.Status{Edition: "MCPE", Name: "awake", Version: "1.21", Capacity: 5}})
			return b
		}), func(t *testing.T, c net.Conn, i int) {
			at := uint64(i) << 32
			pong, err := bedrockwire.ParsePong(ask(c, bedrockwire.AppendPing(nil, at, 9)))
			if err != nil || pong.Time != at || pong.GUID != 7 || pong.Status.Name != "awake" {
				t.Errorf("a pong is %+v, %v", pong, err)
			}
		}},
		"quake3": {v1alpha1.ProtocolQuake3, &asked[1], serves(func(query []byte, _ netip.AddrPort) []byte {
			asked[1].Add(1)
			word, challenge, _ := strings.Cut(string(query[4:]), " ")
			if word == "getstatus" {
				return quake3wire.AppendStatus(nil, quake3wire.Status{Info: quake3wire.Info{"challenge": challenge, "sv_hostname": "awake"}})
			}
			return quake3wire.AppendInfo(nil, quake3wire.Info{"challenge": challenge, "hostname": "awake"})
		}), func(t *testing.T, c net.Conn, i int) {
			challenge := fmt.Sprintf("c%d", i)
			info, err := quake3wire.ParseInfo(ask(c, quake3wire.AppendInfoRequest(nil, challenge)))
			if err != nil || info["challenge"] != challenge || info["hostname"] != "awake" {
				t.Errorf("an info is %v, %v", info, err)
			}
		}},
		"source": {v1alpha1.ProtocolSource, &asked[2], serves(func(query []byte, _ netip.AddrPort) []byte {
			own := sourcewire.Challenge{1, 2, 3, 4}
			if !bytes.HasSuffix(query, own[:]) {
				return sourcewire.AppendAnswer(nil, sourcewire.Answer{Challenge: &own})
			}
			asked[2].Add(1)
			return sourcewire.AppendAnswer(nil, sourcewire.Answer{Info: &sourcewire.Info{Name: "awake", Map: "m", Capacity: 9}})
		}), func(t *testing.T, c net.Conn, _ int) {
			var challenge *sourcewire.Challenge
			for range 2 { // the first is told a challenge
				answer, err := sourcewire.ParseAnswer(ask(c, sourcewire.AppendInfoRequest(nil, challenge)))
				if err != nil {
					t.Errorf("an answer: %v", err)
					return
				}
				if answer.Info != nil && answer.Info.Name == "awake" {
					return
				}
				challenge = answer.Challenge
			}
			t.Error("no info is told")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.server.QueryTimeout = time.Minute
			address := r.serve("game", route.UDP, probed, speaks(tc.protocol))
			server := freeAddress(t, route.UDP)
			tc.serve(t, server)
			r.backend(server, true)
			r.balanced(v1alpha1.BalanceSpread)
			began := time.Now()
			for i := range 300 {
				c := dialUDP(t, address)
				tc.query(t, c, i)
				_ = c.Close()
			}
			took := time.Since(began)
			if n, most := tc.asked.Load(), int64(took/service.FreshFor)+2; n > most {
				t.Errorf("300 queries in %s cost the game %d, want %d at most", took, n, most)
			}
			if s := r.sessions(); s.Sessions != 0 || !r.idleSince(began) {
				t.Errorf("queries keep the service awake: %+v", s)
			}
		})
	}
}

// A storm that comes while a server is asked is told when it answers.
func TestWhoeverAsksMeanwhileIsToldToo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.server.QueryTimeout = time.Minute
	address := r.serve("game", route.UDP, probed, speaks(v1alpha1.ProtocolBedrock))
	server, answers := freeAddress(t, route.UDP), make(chan struct{})
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			at, _ := bedrockwire.ParsePing(buf[:n])
			<-answers
			b, _ := bedrockwire.AppendPong(nil, bedrockwire.Pong{Time: at, Status: bedrockwire.Status{Edition: "MCPE", Name: "awake", Version: "1.21", Capacity: 5}})
			_, _ = c.WriteToUDPAddrPort(b, from)
		}
	}()
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	var clients []*net.UDPConn
	for i := range 50 {
		client := dialUDP(t, address)
		_, _ = client.Write(bedrockwire.AppendPing(nil, uint64(i+1), 9))
		clients = append(clients, client)
	}
	p := r.server.services[r.route.UID].ports[0]
	r.eventually("all wait", func() bool {
		_, waiting := p.Answers.Kept()
		return waiting == 50
	})
	close(answers)
	for i, client := range clients {
		buf := make([]byte, 2048)
		n, err := client.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if pong, err := bedrockwire.ParsePong(buf[:n]); err != nil || pong.Time != uint64(i+1) {
			t.Errorf("client %d got %+v, %v", i, pong, err)
		}
	}
}

// rulesInParts is a Source server whose rules come in parts, to who has its challenge.
func rulesInParts(t *testing.T, address string) {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			answer := "\xff\xff\xff\xffAmine"
			if string(buf[:n]) == "\xff\xff\xff\xffVmine" {
				answer = "\xfe\xff\xff\xff\x01\x00\x00\x00\x02\x00\xe0\x04a part"
			}
			_, _ = c.WriteToUDPAddrPort([]byte(answer), from)
		}
	}()
}

// An answer that can't be told again is the server's to give, with its challenge: many
// programs take one challenge and no other.
func TestAnAnswerInPartsIsTheServersWithItsChallenge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address := r.serve("game", route.UDP, probed, speaks(v1alpha1.ProtocolSource))
	server := freeAddress(t, route.UDP)
	rulesInParts(t, server)
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	rules := func() bool {
		c := dialUDP(t, address)
		defer func() { _ = c.Close() }()
		said := func(text string) string {
			write(t, c, text)
			buf := make([]byte, 100)
			n, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			return string(buf[:n])
		}
		challenge, is := strings.CutPrefix(said("\xff\xff\xff\xffV\xff\xff\xff\xff"), "\xff\xff\xff\xffA")
		return is && strings.HasPrefix(said("\xff\xff\xff\xffV"+challenge), "\xfe\xff\xff\xff")
	}
	// Who asks first finds it out.
	r.eventually("the server answers", rules)
	for range 20 {
		if !rules() {
			t.Fatal("who has one challenge is told another one")
		}
	}
}

// Whoever asks questions of very many kinds doesn't have others told an answer to another
// question than theirs, nor does it get more of the game than some a second.
func TestQuestionsOfManyKindsCostTheGameFew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.server.QueryTimeout = time.Minute
	address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft))
	server := freeAddress(t, route.TCP)
	asked := listedServer(t, server)
	r.backend(server, true)
	r.balanced(v1alpha1.BalanceSpread)
	list := func(host string) {
		c := dialTCP(t, address)
		write(t, c, status(host))
		if got := minecraftStatus(t, c); got.Description != "awake" {
			t.Errorf("a list shows %+v", got)
		}
		_ = c.Close()
	}
	list("play.example.com")
	began := time.Now()
	for i := range 400 {
		list(fmt.Sprintf("%d.example.com", i))
	}
	// Once each of those that there is room for, and in each second those who ask by
	// themselves and one for all others.
	seconds := int64(time.Since(began)/time.Second) + 2
	if n, most := asked.Load(), 2+service.MaxQuestions+(service.MaxQuestions+1)*seconds; n > most {
		t.Errorf("questions of 400 kinds in %d s cost the game %d queries, want %d at most", seconds, n, most)
	}
	p := r.server.services[r.route.UID].ports[0]
	if kinds, _ := p.Answers.Kept(); kinds > service.MaxQuestions {
		t.Errorf("answers to %d kinds are kept, want %d at most", kinds, service.MaxQuestions)
	}
}
