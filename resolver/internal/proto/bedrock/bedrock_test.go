package bedrock

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	wire "dormouse.dev/dormouse/internal/gameproto/bedrock"
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

func client(s proto.Service) proto.Client { return proto.Client{Service: &s, Now: now} }

func asleep() proto.Client { return client(proto.Service{ID: 7}) }

// most is a service whose texts are as long as can be.
func most() proto.Client {
	long := strings.Repeat(";🐭", 2000)
	return client(proto.Service{ID: 1<<64 - 1, Answers: proto.Answers{
		Asleep: long, Version: long, Map: long, Protocol: 2147483647, MaxPlayers: 2147483647,
	}})
}

func TestPingsAreAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		client proto.Client
		want   wire.Status
	}{
		"nothing is known": {asleep(), wire.Status{
			Edition: "MCPE", Name: "Asleep. Join to wake it up.", Version: "1", Capacity: 10, Mode: "Survival",
		}},
		"waking": {client(proto.Service{
			ID: 7, Phase: proto.Waking, Since: now.Add(-12 * time.Second),
			Answers: proto.Answers{Waking: "up\\ soon; {elapsed}\n", Version: "1.21.60", Protocol: 776, MaxPlayers: 5, Map: "burrow"},
		}), wire.Status{
			Edition: "MCPE", Name: "up soon, 12s", Version: "1.21.60", Protocol: 776, Capacity: 5, Level: "burrow", Mode: "Survival",
		}},
	} {
		for _, kind := range []byte{1, 2} {
			ping := recorded(t, "ping")
			ping[0] = kind
			v := Protocol{}.Inspect(ping, c.client)
			if v.Action != proto.Answer || v.Used != len(ping) {
				t.Fatalf("%s: got action %d", name, v.Action)
			}
			got, err := wire.ParsePong(v.Answer)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wire.Pong{Time: 0x01a1ffb0bccc, GUID: 7, Status: c.want}, got); diff != "" {
				t.Errorf("%s: pong (-want +got):\n%s", name, diff)
			}
		}
	}
}

func TestNoPongIsLongerThanItMayBe(t *testing.T) {
	b := Protocol{}.Inspect(recorded(t, "ping"), most()).Answer
	if len(b) > maxPong {
		t.Errorf("a pong of %d bytes", len(b))
	}
	if p, err := wire.ParsePong(b); err != nil || p.Status.Capacity != 2147483647 {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestOnlyRequestsForAConnectionWake(t *testing.T) {
	ping, request := recorded(t, "ping"), recorded(t, "request1")
	for name, c := range map[string]struct {
		head []byte
		want proto.Action
	}{
		"a ping":                         {ping, proto.Answer},
		"a ping with more after it":      {append(slices.Clone(ping), 0), proto.Answer},
		"the first request":              {request, proto.Hold},
		"the second request":             {append([]byte{7}, request[1:40]...), proto.Hold},
		"nothing":                        {nil, proto.Refuse},
		"a ping that is cut":             {ping[:32], proto.Refuse},
		"a ping without magic":           {append([]byte{1}, make([]byte, 32)...), proto.Refuse},
		"a request without magic":        {append([]byte{5}, make([]byte, 1300)...), proto.Refuse},
		"a frame of an older connection": {append([]byte{0x84}, make([]byte, 40)...), proto.Refuse},
		"a server's pong":                {Protocol{}.Inspect(ping, asleep()).Answer, proto.Refuse},
		"a datagram of the largest kind": {make([]byte, 65507), proto.Refuse},
	} {
		if got := (Protocol{}).Inspect(c.head, asleep()); got.Action != c.want {
			t.Errorf("%s: action %d, want %d", name, got.Action, c.want)
		}
	}
}

func TestWhoIsRefusedIsToldInFewerBytesThanItSent(t *testing.T) {
	request := recorded(t, "request1")
	got := Protocol{}.Refusal(proto.QueueFull, request, asleep())
	want := append(append([]byte{0x14}, request[1:17]...), 0, 0, 0, 0, 0, 0, 0, 7)
	if !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	for name, head := range map[string][]byte{"a short request": request[:24], "a ping": recorded(t, "ping"), "nothing": nil} {
		if got := (Protocol{}).Refusal(proto.QueueFull, head, asleep()); got != nil {
			t.Errorf("%s is answered %x", name, got)
		}
	}
}

func TestJudgingARequestAllocatesNothing(t *testing.T) {
	request, c := recorded(t, "request1"), asleep()
	if n := testing.AllocsPerRun(100, func() { Protocol{}.Inspect(request, c) }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(recorded(f, "ping"))
	f.Add(recorded(f, "request1"))
	f.Add(append([]byte{7}, recorded(f, "request1")[1:40]...))
	f.Fuzz(func(t *testing.T, head []byte) {
		before := bytes.Clone(head)
		for _, c := range []proto.Client{asleep(), most()} {
			v := Protocol{}.Inspect(head, c)
			if !bytes.Equal(before, head) {
				t.Fatal("the datagram was changed")
			}
			if len(v.Answer) > maxPong || (v.Action == proto.Answer) != (len(v.Answer) > 0) {
				t.Fatalf("action %d with %d bytes", v.Action, len(v.Answer))
			}
			if b := (Protocol{}).Refusal(proto.QueueFull, head, c); len(b) > len(head) {
				t.Fatalf("%d bytes are refused with %d", len(head), len(b))
			}
		}
	})
}
