package accesslog

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var player = netip.MustParseAddrPort("[2001:db8::7]:50123")

func TestALineTellsAClientsStay(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, func() { t.Error("a line is lost") })
	line := l.Begin(player)
	line.At("infra", "entry", "tcp")
	line.For("games", "lobby", "game", "minecraft")
	line.Served(netip.MustParseAddrPort("10.0.0.9:25565"))
	line.AddBytes(3, 4)
	line.AddBytes(30, 40)
	line.Ended("server")
	line.Ended("client")
	line.Refused("timeout")
	line.Write()
	l.Close()
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%q: %v", out.String(), err)
	}
	for _, name := range []string{"time", "began"} {
		at, err := time.Parse(time.RFC3339Nano, got[name].(string))
		if err != nil || time.Since(at) > time.Minute {
			t.Errorf("%s is %v: %v", name, got[name], err)
		}
		delete(got, name)
	}
	if held := got["held_seconds"].(float64); held < 0 || held > 60 {
		t.Errorf("held_seconds is %v", held)
	}
	delete(got, "held_seconds")
	want := map[string]any{
		"front": "infra/entry", "namespace": "games", "service": "lobby", "port": "game", "protocol": "minecraft",
		"client": "[2001:db8::7]:50123", "server": "10.0.0.9:25565", "bytes_to_server": 33.0, "bytes_to_client": 44.0, "end": "server",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, want %v", name, got[name], value)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("there is %v, too", got)
	}
}

func TestTheEndOfWhoWantedNothing(t *testing.T) {
	for want, note := range map[string]func(*Line){
		`"end":"client"`:                        func(*Line) {},
		`"end":"answered"`:                      (*Line).Answered,
		`"end":"refused","reason":"queue_full"`: func(l *Line) { l.Answered(); l.Refused("queue_full") },
		`"end":"gave_up"`:                       func(l *Line) { l.Answered(); l.Ended(GaveUp) },
	} {
		var out bytes.Buffer
		l := New(&out, func() {})
		line := l.Begin(player)
		note(line)
		line.Write()
		l.Close()
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q has not %s", out.String(), want)
		}
	}
}

// stuck takes nothing in until it is let go.
type stuck struct{ free chan struct{} }

func (s stuck) Write(b []byte) (int, error) {
	<-s.free
	return len(b), nil
}

func TestNobodyWaitsForALogThatIsStuck(t *testing.T) {
	var left atomic.Int64
	out := stuck{make(chan struct{})}
	l := New(out, func() { left.Add(1) })
	const all = 3 * waiting
	for range all {
		l.Begin(player).Write()
	}
	lost := left.Load()
	// What the writer's buffer takes before it is stuck has left the queue.
	if lost == 0 || lost > all-waiting {
		t.Errorf("%d of %d lines were left out, %d may wait", lost, all, waiting)
	}
	close(out.free)
	l.Close()
	l.Begin(player).Write()
	if left.Load() != lost+1 {
		t.Error("a line after the end is not counted")
	}
}

func TestWithoutALogNothingIsNoted(t *testing.T) {
	var l *Log
	if n := testing.AllocsPerRun(10, func() {
		line := l.Begin(player)
		line.For("a", "b", "c", "d")
		line.At("a", "b", "c")
		line.From(player)
		line.Served(player)
		line.Answered()
		line.AddBytes(1, 1)
		line.Refused("x")
		line.Ended("x")
		line.Write()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	l.Close()
}

func BenchmarkALine(b *testing.B) {
	l := New(io.Discard, func() {})
	defer l.Close()
	for b.Loop() {
		line := l.Begin(player)
		line.For("games", "lobby", "game", "minecraft")
		line.Served(player)
		line.Ended("client")
		line.Write()
	}
}
