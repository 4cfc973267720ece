package dataplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// logged is a line of the access log.
type logged struct {
	Front, Namespace, Service, Port, Protocol, Client, Server, End, Reason string
	HeldSeconds                                                            float64 `json:"held_seconds"`
	ToServer                                                               int     `json:"bytes_to_server"`
	ToClient                                                               int     `json:"bytes_to_client"`
}

// logbook keeps an access log.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) lines(t *testing.T) (all []logged) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for text := range strings.Lines(b.text.String()) {
		var l logged
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		all = append(all, l)
	}
	return all
}

// of is the only line of a client, once it is there.
func (b *logbook) of(r *rig, c net.Conn) logged {
	r.t.Helper()
	var found []logged
	r.eventually("the client has a line", func() bool {
		found = nil
		for _, l := range b.lines(r.t.(*testing.T)) {
			if l.Client == c.LocalAddr().String() {
				found = append(found, l)
			}
		}
		return len(found) > 0
	})
	if len(found) > 1 {
		r.t.Errorf("a client has %d lines: %+v", len(found), found)
	}
	return found[0]
}

func withLog(t *testing.T) (*logbook, rigOption) {
	book := &logbook{}
	log := accesslog.New(book, func() { t.Error("a line is lost") })
	t.Cleanup(log.Close)
	return book, func(o *Options) { o.AccessLog = log }
}

// ended is how many clients are counted as having ended so.
func (r *rig) ended(end string) float64 {
	return r.metric("dormouse_resolver_ended_clients_total", map[string]string{"end": end})
}

func TestEachTCPClientsEndIsTold(t *testing.T) {
	t.Parallel()
	book, logs := withLog(t)
	r := newRig(t, logs, withLines)
	address := r.serve("game", route.TCP)
	dialled := func(text string) net.Conn {
		c := dialTCP(t, address)
		write(t, c, text)
		return c
	}
	want := func(c net.Conn, want logged) {
		t.Helper()
		want.Namespace, want.Service, want.Port, want.Protocol, want.Client = "games", "lobby", "game", "tcp", c.LocalAddr().String()
		got := book.of(r, c)
		if want.Server != "" && (got.HeldSeconds < 0 || got.HeldSeconds > 60) {
			t.Errorf("a client was held for %v s", got.HeldSeconds)
		}
		got.HeldSeconds = 0
		if got != want {
			t.Errorf("the line is %+v, want %+v", got, want)
		}
	}

	asks := dialled("status\n")
	expect(t, asks, "asleep\n")
	_ = asks.Close()
	want(asks, logged{End: "answered"})

	unwanted := dialled("nonsense\n")
	expect(t, unwanted, "what?\n")
	want(unwanted, logged{End: "refused", Reason: "unwanted"})

	hasty := dialled("login hasty\n")
	r.queued(1)
	_ = hasty.(*net.TCPConn).SetLinger(0)
	_ = hasty.Close()
	want(hasty, logged{End: "gave_up"})

	server := freeAddress(t, route.TCP)
	leaves, kicked := dialled("login leaves\n"), dialled("login kicked\n")
	r.queued(2)
	<-time.After(10 * time.Millisecond) // which they are held for
	listenTCP(t, server, func(c *net.TCPConn) {
		buf := make([]byte, 100)
		n, _ := c.Read(buf)
		write(t, c, "hello")
		if strings.Contains(string(buf[:n]), "leaves") {
			echo(c)
		}
	})
	r.backend(server, true)
	expect(t, leaves, "hello")
	write(t, leaves, "12")
	expect(t, leaves, "12")
	_ = leaves.Close()
	if held := book.of(r, leaves).HeldSeconds; held < .01 {
		t.Errorf("who was held for 10 ms was held for %v s, it says", held)
	}
	want(leaves, logged{End: "client", Server: server, ToServer: 15, ToClient: 7})
	expect(t, kicked, "hello")
	expectEnd(t, kicked)
	_ = kicked.Close()
	want(kicked, logged{End: "server", Server: server, ToServer: 13, ToClient: 5})
	for _, end := range []string{"client", "server", "gave_up"} {
		if n := r.ended(end); n != 1 {
			t.Errorf("%v clients are counted as ended by %s, want 1", n, end)
		}
	}

	drained := dialled("login leaves too\n")
	expect(t, drained, "hello")
	r.server.Close()
	want(drained, logged{End: "drained", Server: server, ToServer: 17, ToClient: 5})
}

// A client who goes straight to a server has no goroutine that could tell of its end.
func TestTheEndOfWhoGoesStraightIsTold(t *testing.T) {
	t.Parallel()
	book, logs := withLog(t)
	r := newRig(t, logs)
	address := r.serve("game", route.TCP)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	c := dialTCP(t, address)
	write(t, c, "hello")
	expect(t, c, "hello")
	_ = c.Close()
	got := book.of(r, c)
	got.HeldSeconds = 0
	if want := (logged{
		Namespace: "games", Service: "lobby", Port: "game", Protocol: "tcp", Client: c.LocalAddr().String(),
		Server: server, End: "client", ToServer: 5, ToClient: 5,
	}); got != want {
		t.Errorf("the line is %+v, want %+v", got, want)
	}
	if n := r.ended("client"); n != 1 {
		t.Errorf("%v clients are counted as ended, want 1", n)
	}
}

func TestEachUDPSessionsEndIsTold(t *testing.T) {
	t.Parallel()
	book, logs := withLog(t)
	r := newRig(t, logs, udpIdle(2*time.Second), maxUDP(1))
	address := r.serve("game", route.UDP)
	want := func(c net.Conn, want logged) {
		t.Helper()
		want.Namespace, want.Service, want.Port, want.Protocol, want.Client = "games", "lobby", "game", "udp", c.LocalAddr().String()
		got := book.of(r, c)
		got.HeldSeconds = 0
		if got != want {
			t.Errorf("the line is %+v, want %+v", got, want)
		}
	}
	hasty := dialUDP(t, address)
	write(t, hasty, "hello")
	r.queued(1)
	second := dialUDP(t, address)
	write(t, second, "hello")
	r.eventually("the second is refused", func() bool { return r.refused(proto.TooManySessions) == 1 })
	want(hasty, logged{End: "gave_up"})

	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	player := dialUDP(t, address)
	write(t, player, "held")
	r.queued(1)
	r.backend(server, true)
	for i := range 20 {
		if i > 0 {
			write(t, player, fmt.Sprintf("%04d", i))
		}
		buf := make([]byte, 10)
		if n, err := player.Read(buf); err != nil || n != 7 {
			t.Fatalf("an echo of %d bytes: %v", n, err)
		}
	}
	want(player, logged{End: "timeout", Server: server, ToServer: 80, ToClient: 140})

	cut := dialUDP(t, address)
	write(t, cut, "here")
	if _, err := cut.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	r.server.Close()
	want(cut, logged{End: "drained", Server: server, ToServer: 4, ToClient: 7})
	for _, l := range book.lines(t) {
		if l.Client == second.LocalAddr().String() {
			t.Errorf("a datagram that got no session has the line %+v", l)
		}
	}
	for end, n := range map[string]float64{"timeout": 1, "gave_up": 1, "drained": 1} {
		if got := r.ended(end); got != n {
			t.Errorf("%v clients are counted as ended by %s, want %v", got, end, n)
		}
	}
}
