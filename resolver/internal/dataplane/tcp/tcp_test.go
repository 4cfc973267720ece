package tcp

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/proto/tcp"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// patience bounds what should happen at once on a busy machine.
const patience = 10 * time.Second

// wakes answers each wake call.
type wakes struct{}

func (wakes) Wake(context.Context, string, string, int) wake.Result {
	return wake.Result{Outcome: wake.Accepted, Phase: v1alpha1.PhaseWaking}
}

// newPort is a port of a service that is up at an address; it isn't opened.
func newPort(t *testing.T, server netip.AddrPort) *Port {
	t.Helper()
	shared := service.NewShared(service.Options{
		Host: "127.0.0.1", Waker: wakes{}, Metrics: metrics.New(prometheus.NewRegistry()), Log: logr.Discard(),
	})
	r := &route.Route{
		UID: "uid-1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: v1alpha1.PhaseAwake,
		Hold: route.Hold{Timeout: time.Minute, MaxConnections: 1000, MaxBytes: 64 << 10},
		Ports: []route.Port{{
			Name: "game", Network: route.TCP, Protocol: v1alpha1.ProtocolTCP, Probed: true,
			Backends: []route.Backend{{Address: server, Serving: true}},
		}},
	}
	s := service.New(shared, r, &service.Activity{})
	p := NewPort(s.NewPort(r, &r.Ports[0], tcp.Protocol{}), NewService())
	t.Cleanup(func() {
		p.Close()
		s.Queue.Close()
		shared.Close()
		s.Queue.Wait()
		loop.Settle()
		shared.Running.Wait()
	})
	return p
}

// pair is a connection, and the socket of its other end.
func pair(t *testing.T) (c net.Conn, socket int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	socket, err = conn.Take(accepted.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	return c, socket
}

// A backend on another node is connected a moment later, which on one machine has to
// be said.
func TestABackendThatIsConnectedLaterGetsItsClient(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	server := netip.MustParseAddrPort(ln.Addr().String())
	p := newPort(t, server)
	c, client := pair(t)
	to, _, err := conn.Connect(server)
	if err != nil {
		t.Fatal(err)
	}
	from := netip.MustParseAddrPort(c.LocalAddr().String())
	release, ok := p.Queue.Pick(p.Key.PortID)
	if !ok {
		t.Fatal("no backend is up")
	}
	stay, ok := p.takePlace(nil, from.Addr(), p.Policy().Rules)
	if !ok {
		t.Fatal("the client is refused")
	}
	s := &fastClient{
		fastRelay: &fastRelay{port: p, stay: stay, slot: release.Slot},
		loop:      loop.Next(), client: client, from: from, release: release,
	}
	s.begin()
	s.loop.Do(func() { s.wait(to) })
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	backend, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = backend.SetDeadline(time.Now().Add(patience))
	got := make([]byte, 5)
	if n, err := backend.Read(got); err != nil || string(got[:n]) != "hello" {
		t.Errorf("the backend got %q, %v", got[:n], err)
	}
	_, _ = backend.Close(), c.Close()
	for deadline := time.Now().Add(patience); p.FilesTaken() != 0 || p.Active.Open.Load() != 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d files and %d clients are left", p.FilesTaken(), p.Active.Open.Load())
		}
	}
}

// What comes while the resolver gets no processor time is not late.
func TestWhatCameInTimeIsHeardLate(t *testing.T) {
	c, socket := pair(t)
	p := newPort(t, netip.MustParseAddrPort("127.0.0.1:1"))
	stream, err := conn.NewStream(loop.Next(), socket)
	if err != nil {
		_ = unix.Close(socket)
		t.Fatal(err)
	}
	h := newClient(p.Shared, p.Held, stream, netip.AddrPort{})
	defer h.end()
	if _, err := c.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	if err := h.conn.WaitReadable(nil); err != nil {
		t.Fatal(err)
	}
	if !h.goesOn(-time.Second, time.Now().Add(time.Minute)) || string(h.sent) != "more" {
		t.Fatalf("%q was heard of what had come", h.sent)
	}
}
