package minecraft

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	wire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/test/hexfile"
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := hexfile.Read(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// asleep is what a client finds of a sleeping server of which nothing is known.
func asleep() proto.Client { return proto.Client{Service: &proto.Service{}, Now: now} }

// down is a server that is kept asleep for another hour.
func down() proto.Client {
	c := asleep()
	c.Service.DownUntil = now.Add(time.Hour)
	return c
}

// Lists show it, and who logs in reads it, whoever may wake the server otherwise.
func TestAServerThatIsKeptAsleepIsDownForMaintenance(t *testing.T) {
	words := "own for maintenance until " + now.Add(time.Hour).UTC().Format("2006-01-02 15:04 UTC") + "."
	c := down()
	c.Service.Players = proto.NewPlayers("Ask Anna.").Allow(nil)
	if v := (Protocol{}).Inspect(recorded(t, "login_765"), c); v.Action != proto.Refuse || v.Reason != proto.Maintenance || !strings.Contains(string(v.Answer), "The server is d"+words) {
		t.Errorf("who logs in: action %d for %q, told %q", v.Action, v.Reason, v.Answer)
	}
	c.Service.Answers.Asleep = "zzz"
	if v := (Protocol{}).Inspect(recorded(t, "status_765"), c); !strings.Contains(string(v.Answer), `"D`+words) {
		t.Errorf("the list shows %q", v.Answer)
	}
	c.Now = c.Service.DownUntil
	if v := (Protocol{}).Inspect(recorded(t, "status_765"), c); !strings.Contains(string(v.Answer), "zzz") {
		t.Errorf("once it is over the list shows %q", v.Answer)
	}
	c.Service.Players = nil
	if v := (Protocol{}).Inspect(recorded(t, "login_765"), c); v.Action != proto.Hold {
		t.Errorf("once it is over, who logs in: action %d, told %q", v.Action, v.Answer)
	}
}

// learnt is a waking server of which everything is known.
func learnt() proto.Client {
	return proto.Client{Now: now, Service: &proto.Service{
		Phase: proto.Waking, Since: now.Add(-65 * time.Second),
		Answers: proto.Answers{
			Asleep: "asleep", Waking: "awake soon ({elapsed})", Rejoin: "Come back later.",
			Version: "1.20.4", Protocol: 765, MaxPlayers: 7, Favicon: "data:image/png;base64,AAAA",
		},
	}}
}

// handshake writes one with a host.
func handshake(host string, next int32) []byte {
	b := append(wire.AppendVarInt([]byte{handshakeID}, 765), wire.AppendVarInt(nil, int32(len(host)))...)
	b = append(append(b, host...), 0x63, 0xdd)
	return wire.AppendFrame(nil, wire.AppendVarInt(b, next))
}

func frames(packets ...string) []byte {
	var b []byte
	for _, p := range packets {
		b = wire.AppendFrame(b, []byte(p))
	}
	return b
}

const ping = "\x01\x01\x02\x03\x04\x05\x06\x07\x08"

func TestWhatAClientSendsIsJudged(t *testing.T) {
	login := frames("\x00\x05Hazel")
	for name, c := range map[string]struct {
		head   []byte
		want   proto.Action
		used   int
		answer string
		after  time.Duration
	}{
		"nothing":                           {head: nil, want: proto.NeedMore},
		"a login of 1.8":                    {head: recorded(t, "login_47"), want: proto.Hold},
		"a login of 1.19":                   {head: recorded(t, "login_759"), want: proto.Hold},
		"a login of 1.19.2":                 {head: recorded(t, "login_760"), want: proto.Hold},
		"a login of 1.20.1":                 {head: recorded(t, "login_763"), want: proto.Hold},
		"a login of 1.20.4":                 {head: recorded(t, "login_765"), want: proto.Hold},
		"a login of 1.21.4":                 {head: recorded(t, "login_769"), want: proto.Hold},
		"a login with Forge's mark":         {head: recorded(t, "login_forge"), want: proto.Hold},
		"a login with more after it":        {head: append(recorded(t, "login_765"), 1, 2, 3), want: proto.Hold},
		"a login after a transfer":          {head: append(handshake("localhost", 3), login...), want: proto.Hold},
		"a login to a host of 4,000 bytes":  {head: append(handshake(strings.Repeat("a", 4000), 2), login...), want: proto.Hold},
		"a login that begins with fe 01 00": {head: append(handshake(strings.Repeat("a", 246), 2), login...), want: proto.Hold},
		"a status request":                  {head: recorded(t, "status_765"), want: proto.Answer, used: 19},
		"a status request and a ping":       {head: append(recorded(t, "status_765"), frames(ping)...), want: proto.Answer, used: 19},
		"a handshake alone":                 {head: handshake("localhost", 1), want: proto.NeedMore},
		"a ping without a request":          {head: append(handshake("a", 1), frames(ping)...), want: proto.Finish, used: 19, answer: "\x09" + ping},
		"a ping after an answer":            {head: frames(ping), want: proto.Finish, used: 10, answer: "\x09" + ping},
		"another request after an answer":   {head: frames("\x00"), want: proto.Answer, used: 2},
		"a legacy ping of beta 1.8":         {head: []byte{0xfe}, want: proto.Finish, after: legacyPause},
		"a legacy ping of 1.4":              {head: []byte{0xfe, 1}, want: proto.Finish, after: legacyPause},
		"a legacy ping of 1.6":              {head: recorded(t, "legacy_ping"), want: proto.Finish},

		"a wish that there is not":          {head: append(handshake("localhost", 4), login...), want: proto.Refuse},
		"no wish":                           {head: append(handshake("localhost", 0), login...), want: proto.Refuse},
		"a handshake with more in it":       {head: frames(string(handshake("a", 2)[1:]) + "x"), want: proto.Refuse},
		"a packet of nothing":               {head: []byte{0}, want: proto.Refuse},
		"a packet that is too long":         {head: wire.AppendVarInt(nil, maxFrame+1), want: proto.Refuse},
		"a packet of a negative length":     {head: wire.AppendVarInt(nil, -1), want: proto.Refuse},
		"a length without an end":           {head: bytes.Repeat([]byte{0x80}, 6), want: proto.Refuse},
		"a host of a negative length":       {head: frames("\x00\x2f\xff\xff\xff\xff\x0f"), want: proto.Refuse},
		"a host longer than its packet":     {head: frames("\x00\x2f\x20abc"), want: proto.Refuse},
		"a login of nobody":                 {head: append(handshake("a", 2), frames("\x00\x00")...), want: proto.Refuse},
		"a name of 17 characters":           {head: append(handshake("a", 2), frames("\x00\x11"+strings.Repeat("a", 17))...), want: proto.Refuse},
		"a name that is no UTF-8":           {head: append(handshake("a", 2), frames("\x00\x02\xff\xff")...), want: proto.Refuse},
		"another packet instead of a login": {head: append(handshake("a", 2), frames("\x01\x05Hazel")...), want: proto.Refuse},
		"a login instead of a request":      {head: append(handshake("a", 1), login...), want: proto.Refuse},
		"HTTP":                              {head: []byte("GET / HTTP/1.1\r\n\r\n"), want: proto.Refuse},
		"TLS":                               {head: []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaaaaaaaaaaaaaaaaaa"), want: proto.Refuse},
		"the login of a client before 1.7":  {head: []byte{2, 0x4e, 0}, want: proto.Refuse},
	} {
		t.Run(name, func(t *testing.T) {
			got := Protocol{}.Inspect(c.head, asleep())
			if got.Action != c.want || got.Used != c.used || (c.answer != "" && string(got.Answer) != c.answer) {
				t.Errorf("got action %d, %d bytes used, %q; want %d, %d, %q", got.Action, got.Used, got.Answer, c.want, c.used, c.answer)
			}
			answers := c.want == proto.Answer || c.want == proto.Finish
			if answers != (len(got.Answer) > 0) {
				t.Errorf("the answer has %d bytes", len(got.Answer))
			}
			if got.After != c.after {
				t.Errorf("it holds after %s, want %s", got.After, c.after)
			}
		})
	}
}

func TestMoreIsWaitedForAtEveryPlaceAtWhichBytesMayBeCut(t *testing.T) {
	for _, name := range []string{"login_47", "login_760", "login_769", "login_forge", "status_765"} {
		whole := recorded(t, name)
		for end := range whole {
			if got := (Protocol{}).Inspect(whole[:end], asleep()); got.Action != proto.NeedMore {
				t.Errorf("%d of the %d bytes of %s: action %d", end, len(whole), name, got.Action)
			}
		}
	}
}

func TestTheHandshakeTellsTheNameThatWasTyped(t *testing.T) {
	for name, c := range map[string]struct {
		head []byte
		want string
	}{
		"as it is":                   {recorded(t, "login_765"), "127.0.0.1"},
		"without what Forge appends": {recorded(t, "login_forge"), "127.0.0.1"},
		"without what proxies add":   {handshake("Play.Example.COM.\x00192.0.2.7\x00uuid\x00[]", 2), "play.example.com"},
		"nothing":                    {handshake("", 2), ""},
	} {
		h, size, err := ParseHandshake(c.head)
		if err != nil || h.ServerName() != c.want {
			t.Errorf("%s: got %q, %v", name, h.ServerName(), err)
		}
		if size != int(c.head[0])+1 {
			t.Errorf("%s: it had %d bytes", name, size)
		}
	}
	// What is passed on is all of it.
	if h, _, _ := ParseHandshake(recorded(t, "login_forge")); string(h.Host) != "127.0.0.1\x00FML\x00" {
		t.Errorf("the host is %q", h.Host)
	}
}

func statusOf(t *testing.T, b []byte) wire.Status {
	t.Helper()
	length, size, err := wire.ParseFrameLength(b)
	if err != nil || length != len(b)-size {
		t.Fatalf("a frame of %d of %d bytes: %v", length, len(b), err)
	}
	s, err := wire.ParseStatus(b[size:])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheStatusTellsWhatIsKnown(t *testing.T) {
	waking := learnt()
	sleeping := learnt()
	sleeping.Service = &proto.Service{Answers: learnt().Service.Answers}
	huge := asleep()
	huge.Service = &proto.Service{Answers: proto.Answers{Asleep: strings.Repeat("ü", 2000), Favicon: strings.Repeat("A", 40_000)}}
	for name, c := range map[string]struct {
		client proto.Client
		want   wire.Status
	}{
		"nothing": {asleep(), wire.Status{Version: "Minecraft", Protocol: 765, Capacity: 20, Description: "Asleep. Join to wake it up."}},
		"everything, asleep": {sleeping, wire.Status{
			Version: "1.20.4", Protocol: 765, Capacity: 7, Description: "asleep", Favicon: "data:image/png;base64,AAAA",
		}},
		"everything, waking": {waking, wire.Status{
			Version: "1.20.4", Protocol: 765, Capacity: 7, Description: "awake soon (1m5s)", Favicon: "data:image/png;base64,AAAA",
		}},
		"too much": {huge, wire.Status{Version: "Minecraft", Protocol: 765, Capacity: 20, Description: strings.Repeat("ü", maxMessage/2)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := statusOf(t, Protocol{}.Inspect(recorded(t, "status_765"), c.client).Answer)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
	// A client of a protocol that the server has not is told of the server's.
	other := Protocol{}.Inspect(append(wire.AppendFrame(nil, []byte("\x00\x2f\x00\x00\x00\x01")), 1, 0), learnt())
	if got := statusOf(t, other.Answer); got.Protocol != 765 {
		t.Errorf("a client of protocol 47 is told %d", got.Protocol)
	}
}

// legacyOf takes a legacy answer apart.
func legacyOf(t *testing.T, b []byte) string {
	t.Helper()
	if len(b) < 3 || b[0] != 0xff || int(binary.BigEndian.Uint16(b[1:]))*2 != len(b)-3 {
		t.Fatalf("got %x", b)
	}
	units := make([]uint16, 0, len(b)/2)
	for rest := b[3:]; len(rest) > 0; rest = rest[2:] {
		units = append(units, binary.BigEndian.Uint16(rest))
	}
	if len(units) > 256 {
		t.Errorf("%d code units are more than old clients take", len(units))
	}
	return string(utf16.Decode(units))
}

func TestLegacyPingsAreAnswered(t *testing.T) {
	colours := asleep()
	colours.Service = &proto.Service{Answers: proto.Answers{Asleep: "§6a 🐭\x00sleeps" + strings.Repeat("z", 300), MaxPlayers: 2147483647}}
	for name, c := range map[string]struct {
		head   []byte
		client proto.Client
		want   string
	}{
		"beta":              {[]byte{0xfe}, learnt(), "awake soon (1m5s)§0§7"},
		"1.4":               {[]byte{0xfe, 1}, learnt(), "§1\x00765\x001.20.4\x00awake soon (1m5s)\x000\x007"},
		"1.6":               {recorded(t, "legacy_ping"), learnt(), "§1\x00765\x001.20.4\x00awake soon (1m5s)\x000\x007"},
		"1.6, not known":    {recorded(t, "legacy_ping"), asleep(), "§1\x00127\x00Minecraft\x00Asleep. Join to wake it up.\x000\x0020"},
		"1.6, with colours": {recorded(t, "legacy_ping"), colours, "§1\x00127\x00Minecraft\x00§6a 🐭sleeps" + strings.Repeat("z", 160-12) + "\x000\x002147483647"},
		"beta, colours":     {[]byte{0xfe}, colours, "6a 🐭\x00sleeps" + strings.Repeat("z", 233-12) + "§0§2147483647"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := legacyOf(t, Protocol{}.Inspect(c.head, c.client).Answer); got != c.want {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestWhoWantsToLogInIsToldWhyNot(t *testing.T) {
	for name, c := range map[string]struct {
		why    proto.Reason
		head   []byte
		client proto.Client
		want   string
	}{
		"after a time":        {proto.TimedOut, recorded(t, "login_765"), asleep(), "still waking up. Join again"},
		"in words of one own": {proto.TimedOut, recorded(t, "login_765"), learnt(), "Come back later."},
		"of a full queue":     {proto.QueueFull, recorded(t, "login_47"), learnt(), "Too many players"},
		"of maintenance":      {proto.Maintenance, recorded(t, "login_765"), down(), "The server is down for maintenance until " + now.Add(time.Hour).UTC().Format("2006-01-02 15:04 UTC") + "."},
		"of what is over":     {proto.Maintenance, recorded(t, "login_765"), asleep(), "The server is down for maintenance."},
		"of no target":        {proto.NothingToWake, recorded(t, "login_forge"), asleep(), "can't be woken"},
		"of no route":         {proto.RouteGone, recorded(t, "login_769"), asleep(), "Join again"},
		"half way":            {proto.Unfinished, handshake("a", 3), asleep(), "Join again"},
	} {
		t.Run(name, func(t *testing.T) {
			b := Protocol{}.Refusal(c.why, c.head, c.client)
			packet, size, err := cutFrame(b)
			if err != nil || size != len(b) || packet[0] != 0 {
				t.Fatalf("got %q, %v", b, err)
			}
			r := reader{rest: packet[1:]}
			var got struct{ Text string }
			if err := json.Unmarshal(r.bytes(maxFrame), &got); err != nil || len(r.rest) > 0 {
				t.Fatalf("got %q, %v", packet, err)
			}
			if !strings.Contains(got.Text, c.want) {
				t.Errorf("told %q, want %q in it", got.Text, c.want)
			}
		})
	}
	for name, head := range map[string][]byte{
		"who asks for the status": recorded(t, "status_765"), "who said nothing": nil, "who talks nonsense": []byte("GET / HTTP/1.1"),
		"a legacy client": {0xfe, 1},
	} {
		if got := (Protocol{}).Refusal(proto.TimedOut, head, asleep()); got != nil {
			t.Errorf("%s is told %q", name, got)
		}
	}
}

func TestAServerThatHidesHowManyPlayAnswers(t *testing.T) {
	frame := func(text string) []byte {
		packet := wire.AppendVarInt(wire.AppendVarInt(nil, 0), int32(len(text)))
		return wire.AppendFrame(nil, append(packet, text...))
	}
	const version = `"version":{"name":"1.21.4","protocol":769}`
	hidden := proto.Answers{Version: "1.21.4", Protocol: 769}
	counted := hidden
	counted.MaxPlayers = 20
	for name, c := range map[string]struct {
		text string
		want proto.Answers
		ok   bool
	}{
		"that says it":            {`{` + version + `,"players":{"online":1,"max":20}}`, counted, true},
		"with no players":         {`{` + version + `}`, hidden, true},
		"with players of null":    {`{` + version + `,"players":null}`, hidden, true},
		"with nothing in players": {`{` + version + `,"players":{}}`, hidden, true},
		"with fewer than none":    {`{` + version + `,"players":{"online":-1,"max":-1}}`, hidden, true},
		"but not without JSON":    {`Hello`, proto.Answers{}, false},
		"but not with a list":     {`[]`, proto.Answers{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			serve := func() net.Conn {
				server, client := net.Pipe()
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = server.Read(make([]byte, 1024))
					_, _ = server.Write(frame(c.text))
				}()
				t.Cleanup(func() { _ = client.Close(); <-done })
				return client
			}
			got, err := Protocol{}.Ask(serve())
			if (err == nil) != c.ok || got != c.want {
				t.Errorf("asked, it says %+v (error %v), want %+v", got, err, c.want)
			}
			// Who asks gets that as it is.
			status, err := Protocol{}.Fetch(serve(), recorded(t, "status_765"))
			if (err == nil) != c.ok || c.ok && !bytes.Equal(status, frame(c.text)) {
				t.Errorf("a list gets %q (error %v)", status, err)
			}
		})
	}
}

func TestJudgingALoginAllocatesNothing(t *testing.T) {
	for _, head := range [][]byte{recorded(t, "login_769"), recorded(t, "login_769")[:20], []byte("GET / HTTP/1.1 and so on and on")} {
		c := asleep()
		if n := testing.AllocsPerRun(100, func() { Protocol{}.Inspect(head, c) }); n != 0 {
			t.Errorf("judging %q allocates %v times", head, n)
		}
	}
}

func FuzzInspect(f *testing.F) {
	for _, name := range []string{"login_47", "login_759", "login_760", "login_763", "login_765", "login_769", "login_forge", "status_765", "legacy_ping"} {
		f.Add(recorded(f, name))
	}
	f.Add([]byte{0xfe})
	f.Add([]byte{0xfe, 1})
	f.Add(frames(ping, "\x00"))
	f.Fuzz(func(t *testing.T, head []byte) {
		before := bytes.Clone(head)
		for _, c := range []proto.Client{asleep(), learnt()} {
			v := Protocol{}.Inspect(head, c)
			if !bytes.Equal(before, head) {
				t.Fatal("what the client sent was changed")
			}
			if v.Used < 0 || v.Used > len(head) || (v.Action == proto.Answer) && (v.Used == 0 || len(v.Answer) == 0) {
				t.Fatalf("got %+v of %d bytes", v, len(head))
			}
			// Whoever is held wants to log in, and is told when that fails.
			if v.Action == proto.Hold && len(Protocol{}.Refusal(proto.TimedOut, head, c)) == 0 {
				t.Fatal("it is held and can't be told why it is sent away")
			}
			if v.Action == proto.Hold || v.Action == proto.Refuse {
				// More bytes don't change what was decided.
				if again := (Protocol{}).Inspect(append(head[:len(head):len(head)], 0xaa), c); again.Action != v.Action && head[0] != legacyID {
					t.Fatalf("with a byte more action %d became %d", v.Action, again.Action)
				}
			}
		}
		h, size, err := ParseHandshake(head)
		if err != nil && !errors.Is(err, wire.ErrShort) && !errors.Is(err, errMalformed) {
			t.Fatal(err)
		}
		if err == nil && (size > len(head) || strings.ContainsRune(h.ServerName(), 0)) {
			t.Fatalf("got %+v of %d bytes", h, size)
		}
	})
}
