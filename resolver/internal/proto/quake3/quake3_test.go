package quake3

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	wire "dormouse.dev/dormouse/internal/gameproto/quake3"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/test/hexfile"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := hexfile.Read(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func client(s proto.Service) proto.Client { return proto.Client{Service: &s, Now: now} }

func asleep() proto.Client { return client(proto.Service{}) }

func learnt() proto.Client {
	return client(proto.Service{Phase: proto.Waking, Since: now.Add(-3 * time.Second), Answers: proto.Answers{
		Waking: "^1up\\ in a \"moment\";\n {elapsed}", Map: "oa_dm1", Game: "Quake3Arena", Version: "ioq3", Protocol: 71, MaxPlayers: 12,
	}})
}

// most is a service whose texts are as long as can be.
func most() proto.Client {
	long := strings.Repeat("🐭", 500)
	return client(proto.Service{Answers: proto.Answers{
		Asleep: long, Version: long, Map: long, Game: long, Protocol: 2147483647, MaxPlayers: 2147483647,
	}})
}

func TestQueriesAreAnswered(t *testing.T) {
	info := func(c proto.Client, name, number string) wire.Info {
		i := wire.Info{"challenge": "rabbit", "mapname": "-", "protocol": "68", "sv_maxclients": "16", name: "Asleep. Join to wake it up."}
		if c.Service.Phase == proto.Waking {
			i = wire.Info{
				"challenge": "rabbit", "mapname": "oa_dm1", "protocol": "71", "sv_maxclients": "12", "gamename": "Quake3Arena",
				name: "^1up in a moment 3s",
			}
		}
		if number == "clients" {
			i["clients"], i["g_humanplayers"] = "0", "0"
		} else if c.Service.Answers.Version != "" {
			i["version"] = c.Service.Answers.Version
		}
		return i
	}
	for name, c := range map[string]proto.Client{"nothing is known": asleep(), "all is known": learnt()} {
		status, err := wire.ParseStatus(Protocol{}.Inspect([]byte(mark+"getstatus rabbit"), c).Answer)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wire.Status{Info: info(c, "sv_hostname", "")}, status); diff != "" {
			t.Errorf("%s: status (-want +got):\n%s", name, diff)
		}
		got, err := wire.ParseInfo(Protocol{}.Inspect([]byte(mark+"getinfo rabbit"), c).Answer)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(info(c, "hostname", "clients"), got); diff != "" {
			t.Errorf("%s: info (-want +got):\n%s", name, diff)
		}
	}
}

func TestNoAnswerIsLongerThanItMayBe(t *testing.T) {
	for _, word := range []string{"getstatus ", "getinfo "} {
		v := Protocol{}.Inspect([]byte(mark+word+strings.Repeat("c", 1000)), most())
		if v.Action != proto.Answer || len(v.Answer) > maxAnswer {
			t.Errorf("%s: action %d with %d bytes", word, v.Action, len(v.Answer))
		}
	}
}

func TestTheChallengeIsRepeatedAsFarAsItIsOne(t *testing.T) {
	for query, want := range map[string]string{
		"getinfo":            "",
		"getinfo ":           "",
		"getinfo xxx":        "xxx",
		"getinfo xxx\n":      "xxx",
		"GetInfo  abc def":   "abc",
		"getinfo a\\b\\c":    "a",
		"getinfo a\"b":       "a",
		"getinfo \xff\xff":   "",
		"getinfo 1\x00\x001": "1",
	} {
		got, err := wire.ParseInfo(Protocol{}.Inspect([]byte(mark+query), asleep()).Answer)
		if err != nil || got["challenge"] != want {
			t.Errorf("%q: got %q, %v, want %q", query, got["challenge"], err, want)
		}
	}
}

func TestQueriesNeverWakeAndAllElseDoes(t *testing.T) {
	for name, c := range map[string]struct {
		head []byte
		want proto.Action
	}{
		"a server browser":              {recorded(t, "getstatus"), proto.Answer},
		"another":                       {recorded(t, "getinfo"), proto.Answer},
		"an info":                       {[]byte(mark + "getinfo xxx"), proto.Answer},
		"a client that comes":           {recorded(t, "getchallenge"), proto.Hold},
		"a longer word":                 {[]byte(mark + "getinfos"), proto.Hold},
		"a shorter word":                {[]byte(mark + "getinf"), proto.Hold},
		"a query without a mark":        {[]byte("getinfo xxx"), proto.Hold},
		"a datagram of a connection":    {[]byte{1, 2, 3, 4, 5}, proto.Hold},
		"a mark":                        {[]byte(mark), proto.Hold},
		"one byte":                      {[]byte{0xff}, proto.Hold},
		"a datagram of the largest":     {make([]byte, 65507), proto.Hold},
		"a datagram of the largest (2)": {[]byte(mark + "getinfo " + strings.Repeat("x", 65000)), proto.Answer},
		"nothing":                       {nil, proto.Refuse},
	} {
		if got := (Protocol{}).Inspect(c.head, asleep()); got.Action != c.want {
			t.Errorf("%s: action %d, want %d", name, got.Action, c.want)
		}
	}
}

func TestWhoIsRefusedIsToldInNoMoreBytesThanItSent(t *testing.T) {
	challenge := recorded(t, "getchallenge")
	for why, want := range map[proto.Reason]string{
		proto.QueueFull: mark + "print\nServer is full.\n", proto.TimedOut: mark + "print\nTry again later.\n",
	} {
		if got := (Protocol{}).Refusal(why, challenge, asleep()); string(got) != want {
			t.Errorf("%s: told %q, want %q", why, got, want)
		}
	}
	for name, head := range map[string]string{"a short one": mark + "getchallenge", "a connection's": strings.Repeat("a", 100), "none": ""} {
		if got := (Protocol{}).Refusal(proto.QueueFull, []byte(head), asleep()); got != nil {
			t.Errorf("%s is told %q", name, got)
		}
	}
}

func TestJudgingAllocatesNothing(t *testing.T) {
	c := learnt()
	c.Scratch = make([]byte, 0, maxAnswer+maxName)
	for _, head := range [][]byte{recorded(t, "getstatus"), recorded(t, "getchallenge"), []byte(mark + "getinfo xxx")} {
		if n := testing.AllocsPerRun(100, func() { Protocol{}.Inspect(head, c) }); n != 0 {
			t.Errorf("judging %q allocates %v times", head, n)
		}
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(recorded(f, "getstatus"))
	f.Add(recorded(f, "getchallenge"))
	f.Add(recorded(f, "getinfo"))
	f.Add([]byte(mark + "GETINFO a\\b"))
	f.Fuzz(func(t *testing.T, head []byte) {
		before := bytes.Clone(head)
		for _, c := range []proto.Client{asleep(), learnt(), most()} {
			v := Protocol{}.Inspect(head, c)
			if !bytes.Equal(before, head) {
				t.Fatal("the datagram was changed")
			}
			if len(v.Answer) > maxAnswer || (v.Action == proto.Answer) != (len(v.Answer) > 0) {
				t.Fatalf("action %d with %d bytes", v.Action, len(v.Answer))
			}
			if b := (Protocol{}).Refusal(proto.QueueFull, head, c); len(b) > len(head) {
				t.Fatalf("%d bytes are refused with %d", len(head), len(b))
			}
			if v.Action != proto.Answer {
				continue
			}
			_, notStatus := wire.ParseStatus(v.Answer)
			_, notInfo := wire.ParseInfo(v.Answer)
			if notStatus != nil && notInfo != nil {
				t.Fatalf("%q is no answer: %v, %v", v.Answer, notStatus, notInfo)
			}
		}
	})
}
