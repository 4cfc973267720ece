package dataplane

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// awakeRig is one whose service is up at an address on which nobody listens so far.
func awakeRig(t *testing.T) (r *rig, address, server string) {
	t.Helper()
	r = newRig(t)
	address, server = r.serve("game", route.TCP, probed), freeAddress(t, route.TCP)
	r.phase(v1alpha1.PhaseAwake)
	r.backend(server, true)
	return r, address, server
}

// left waits until nobody is carried any more, and nothing of it is kept.
func (r *rig) left() {
	r.t.Helper()
	r.eventually("all clients have left", func() bool {
		sv := r.server.services["uid-1"]
		return r.server.Carrying() == 0 && sv.active.open.Load() == 0 && sv.files.Load() == 0
	})
}

func TestAClientOfAServiceThatIsUpIsCountedWhileItIsServed(t *testing.T) {
	r, address, server := awakeRig(t)
	listenTCP(t, server, echo)
	c := dialTCP(t, address)
	write(t, c, "hello")
	expect(t, c, "hello")
	if got := r.sessions().Sessions; got != 1 {
		t.Errorf("%d sessions are told, want 1", got)
	}
	if got := r.server.services["uid-1"].files.Load(); got != filesOfTCP {
		t.Errorf("%d files are counted, want %d", got, filesOfTCP)
	}
	_ = c.Close()
	r.left()
	if taken := r.metric("dormouse_resolver_clients_total", nil); taken != 1 {
		t.Errorf("%v clients are counted, want 1", taken)
	}
}

// What a client sent to a server that can't be reached is another's, or the same
// one's when it is back.
func TestAClientWhoseServerIsNotThereWaitsForIt(t *testing.T) {
	r, address, server := awakeRig(t)
	c := dialTCP(t, address)
	write(t, c, "hello")
	r.queued(1)
	// It is told of as both for a moment, so that it is always told of.
	r.eventually("no session is told of with a server that isn't there", func() bool { return r.sessions().Sessions == 0 })
	listenTCP(t, server, echo)
	expect(t, c, "hello")
	_ = c.Close()
	r.left()
	if taken := r.metric("dormouse_resolver_clients_total", nil); taken != 1 {
		t.Errorf("%v clients are counted, want 1", taken)
	}
}

// A server that takes no connection, and refuses none either, is given up soon.
func TestAServerThatTakesTooLongIsNotWaitedFor(t *testing.T) {
	r, address, server := awakeRig(t)
	crash := shortListener(t, server)
	at := netip.MustParseAddrPort(server)
	for full := false; !full; {
		fd, pending, err := conn.Connect(at, listener.Prepare)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		full = pending
	}
	c := dialTCP(t, address)
	write(t, c, "hello")
	r.queued(1)
	crash()
	listenTCP(t, server, echo)
	expect(t, c, "hello")
	_ = c.Close()
	r.left()
}

// A server on another node is connected a moment later, which on one machine has to
// be said.
func TestAServerThatIsConnectedLaterGetsItsClient(t *testing.T) {
	r, _, server := awakeRig(t)
	listenTCP(t, server, echo)
	p := r.server.services["uid-1"].ports[0]
	ln := listen(t, "127.0.0.1:0")
	defer func() { _ = ln.Close() }()
	c := dialTCP(t, ln.Addr().String())
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client, err := conn.Take(accepted.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	to, _, err := conn.Connect(netip.MustParseAddrPort(server), listener.Prepare)
	if err != nil {
		t.Fatal(err)
	}
	from := netip.MustParseAddrPort(c.LocalAddr().String())
	grant, ok := p.service.queue.Pick(p.key.name)
	if !ok {
		t.Fatal("no server is up")
	}
	visit, ok := p.visit(nil, from.Addr(), p.known.Load().rules)
	if !ok {
		t.Fatal("the client is refused")
	}
	s := &straightTCP{port: p, loop: loop.Next(), client: client, from: from, visit: visit, grant: grant, slowly: func(_ *loop.Loop, fd int, _ netip.AddrPort) {
		t.Error("the client went another way")
		_ = unix.Close(fd)
	}}
	s.begin()
	s.loop.Do(func() { s.wait(to) })
	write(t, c, "hello")
	expect(t, c, "hello")
	_ = c.Close()
	r.left()
}
