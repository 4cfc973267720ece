package source

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	wire "dormouse.dev/dormouse/internal/gameproto/source"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/test/hexfile"
)

var (
	now  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	here = netip.MustParseAddrPort("192.0.2.7:27005")
	// infoQuery is without a challenge.
	infoQuery = wire.AppendInfoRequest(nil, nil)
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := hexfile.Read(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func client(s proto.Service) proto.Client { return proto.Client{Service: &s, Source: here, Now: now} }

func asleep() proto.Client { return client(proto.Service{}) }

// ask writes a query with a challenge.
func ask(kind byte, challenge wire.Challenge) []byte {
	b := append([]byte(mark), kind)
	if kind == askInfo {
		b = append(b, infoText...)
	}
	return append(b, challenge[:]...)
}

// challengeOf is what the module makes a client repeat.
func challengeOf(t *testing.T, p *Protocol, head []byte, c proto.Client) wire.Challenge {
	t.Helper()
	v := p.Inspect(head, c)
	a, err := wire.ParseAnswer(v.Answer)
	if v.Action != proto.Answer || err != nil || a.Challenge == nil {
		t.Fatalf("action %d with %q, %v; want a challenge", v.Action, v.Answer, err)
	}
	if len(v.Answer) > len(head) {
		t.Errorf("%d bytes are answered with %d", len(head), len(v.Answer))
	}
	return *a.Challenge
}

func TestAnInfoIsForWhoRepeatsTheChallenge(t *testing.T) {
	p := New()
	for name, c := range map[string]struct {
		client proto.Client
		want   wire.Info
	}{
		"nothing is known": {asleep(), wire.Info{
			Protocol: 17, Name: "Asleep. Join to wake it up.", Map: "-", Folder: "-", Game: "-", Capacity: 16, Type: 'd', OS: 'l', Version: "1.0.0.0",
		}},
		"all is known": {
			client(proto.Service{Phase: proto.Waking, Since: now.Add(-5 * time.Second), Answers: proto.Answers{
				Waking: "up after {elapsed}", Map: "de_dust", Folder: "cstrike", Game: "Counter-Strike", Version: "1.2", AppID: 108600, MaxPlayers: 1000,
			}}),
			wire.Info{
				Protocol: 17, Name: "up after 5s", Map: "de_dust", Folder: "cstrike", Game: "Counter-Strike", AppID: 108600 - 65536,
				Capacity: 255, Type: 'd', OS: 'l', Version: "1.2", GameID: 108600,
			},
		},
		"it is too much": {
			client(proto.Service{Answers: proto.Answers{
				Asleep: strings.Repeat("ü", 300), Map: strings.Repeat("m", 99), Folder: "a\x00b", Game: strings.Repeat("ü", 99),
			}}),
			wire.Info{
				Protocol: 17, Name: strings.Repeat("ü", 64), Map: strings.Repeat("m", 64), Folder: "a", Game: strings.Repeat("ü", 32),
				Capacity: 16, Type: 'd', OS: 'l', Version: "1.0.0.0",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			challenge := challengeOf(t, p, infoQuery, c.client)
			v := p.Inspect(ask(askInfo, challenge), c.client)
			got, err := wire.ParseAnswer(v.Answer)
			if v.Action != proto.Answer || err != nil {
				t.Fatalf("action %d, %v", v.Action, err)
			}
			if diff := cmp.Diff(wire.Answer{Info: &c.want}, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNobodyPlaysAndThereAreNoRulesWhileTheServerSleeps(t *testing.T) {
	p := New()
	none := wire.Challenge{0xff, 0xff, 0xff, 0xff}
	for kind, want := range map[byte]string{askPlayers: "\xff\xff\xff\xffD\x00", askRules: "\xff\xff\xff\xffE\x00\x00"} {
		challenge := challengeOf(t, p, ask(kind, none), asleep())
		if v := p.Inspect(ask(kind, challenge), asleep()); string(v.Answer) != want {
			t.Errorf("%c is answered %q, want %q", kind, v.Answer, want)
		}
	}
}

func TestAChallengeIsForOneAddressAndAWhile(t *testing.T) {
	p := New()
	challenge := challengeOf(t, p, infoQuery, asleep())
	for name, c := range map[string]struct {
		change func(*proto.Client)
		of     *Protocol
		want   bool
	}{
		"at once":              {func(*proto.Client) {}, p, true},
		"half a minute later":  {func(c *proto.Client) { c.Now = now.Add(30 * time.Second) }, p, true},
		"a minute later":       {func(c *proto.Client) { c.Now = now.Add(61 * time.Second) }, p, false},
		"from another port":    {func(c *proto.Client) { c.Source = netip.MustParseAddrPort("192.0.2.7:27006") }, p, false},
		"from another address": {func(c *proto.Client) { c.Source = netip.MustParseAddrPort("192.0.2.8:27005") }, p, false},
		"from IPv6":            {func(c *proto.Client) { c.Source = netip.MustParseAddrPort("[2001:db8::7]:27005") }, p, false},
		"to another resolver":  {func(*proto.Client) {}, New(), false},
	} {
		at := asleep()
		c.change(&at)
		answer, err := wire.ParseAnswer(c.of.Inspect(ask(askInfo, challenge), at).Answer)
		if err != nil || (answer.Info != nil) != c.want {
			t.Errorf("%s: got %+v, %v", name, answer, err)
		}
	}
}

func TestQueriesNeverWakeAndAllElseDoes(t *testing.T) {
	for name, c := range map[string]struct {
		head []byte
		want proto.Action
	}{
		"an info":                       {infoQuery, proto.Answer},
		"a browser's info":              {recorded(t, "info_first"), proto.Answer},
		"its second":                    {recorded(t, "info_request"), proto.Answer},
		"players":                       {ask(askPlayers, wire.Challenge{}), proto.Answer},
		"rules":                         {ask(askRules, wire.Challenge{}), proto.Answer},
		"an info of another text":       {[]byte(mark + "TSource Engine Quer!\x00"), proto.Refuse},
		"an info with half a challenge": {append(slices.Clone(infoQuery), 1, 2), proto.Refuse},
		"players without a challenge":   {[]byte(mark + "U"), proto.Refuse},
		"a request for a challenge":     {[]byte(mark + "W"), proto.Refuse},
		"an old ping":                   {[]byte(mark + "i"), proto.Refuse},
		"nothing":                       {nil, proto.Refuse},
		"a mark":                        {[]byte(mark), proto.Hold},
		"what Source's clients send":    {[]byte(mark + "q\x01\x02\x03\x04000000\x00"), proto.Hold},
		"what GoldSource's clients do":  {[]byte(mark + "getchallenge steam\n"), proto.Hold},
		"a game's own datagram":         {[]byte{1, 2, 3}, proto.Hold},
		"one of the largest kind":       {make([]byte, 65507), proto.Hold},
	} {
		if got := New().Inspect(c.head, asleep()); got.Action != c.want {
			t.Errorf("%s: action %d, want %d", name, got.Action, c.want)
		}
	}
}

func TestWhereAnythingWakesQueriesAreProven(t *testing.T) {
	p := New()
	challenge := challengeOf(t, p, infoQuery, asleep())
	for name, c := range map[string]struct {
		head []byte
		want proto.Action
	}{
		"a query":                        {infoQuery, proto.Answer},
		"a query with the challenge":     {ask(askInfo, challenge), proto.Hold},
		"rules with the challenge":       {ask(askRules, challenge), proto.Hold},
		"players with another challenge": {ask(askPlayers, wire.Challenge{1, 2, 3, 4}), proto.Answer},
		"half a query":                   {[]byte(mark + "U"), proto.Refuse},
		"a game's own":                   {[]byte{1, 2, 3}, proto.Hold},
		"nothing":                        {nil, proto.Hold},
	} {
		v := p.ValidateAddress(c.head, asleep())
		if v.Action != c.want || v.AddressValidated || len(v.Answer) > len(c.head) {
			t.Errorf("%s: got %+v, want action %d", name, v, c.want)
		}
	}
	if v := p.Inspect(ask(askInfo, challenge), asleep()); !v.AddressValidated {
		t.Error("who repeated the challenge has not proven anything")
	}
}

func TestAChallengeAllocatesNothing(t *testing.T) {
	p, c := New(), asleep()
	c.Scratch = make([]byte, 0, 512)
	for _, head := range [][]byte{infoQuery, ask(askPlayers, wire.Challenge{}), {1, 2, 3}} {
		if n := testing.AllocsPerRun(100, func() { p.Inspect(head, c) }); n != 0 {
			t.Errorf("judging %q allocates %v times", head, n)
		}
	}
}

func FuzzInspect(f *testing.F) {
	p := New()
	f.Add(infoQuery)
	f.Add(recorded(f, "info_request"))
	f.Add(ask(askRules, wire.Challenge{1, 2, 3, 4}))
	f.Add([]byte(mark + "W"))
	f.Fuzz(func(t *testing.T, head []byte) {
		before := bytes.Clone(head)
		v := p.Inspect(head, asleep())
		if !bytes.Equal(before, head) {
			t.Fatal("the datagram was changed")
		}
		// Nobody has guessed a challenge, so all answers are challenges.
		if len(v.Answer) > len(head) || (v.Action == proto.Answer) != (len(v.Answer) > 0) {
			t.Fatalf("%d bytes: action %d with %d bytes", len(head), v.Action, len(v.Answer))
		}
		// Where anything wakes, what is answered and what is refused stays so.
		if w := p.ValidateAddress(head, asleep()); len(head) > 0 && (w.Action != v.Action || !bytes.Equal(w.Answer, v.Answer)) {
			t.Fatalf("to prove: action %d with %q, and %d with %q", w.Action, w.Answer, v.Action, v.Answer)
		}
	})
}
