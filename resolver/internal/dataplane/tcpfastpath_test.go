package dataplane

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
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
		return r.server.Clients() == 0 && sv.Active.Open.Load() == 0 && sv.FilesTaken() == 0
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
	if got := r.server.services["uid-1"].FilesTaken(); got != service.FilesOfTCP {
		t.Errorf("%d files are counted, want %d", got, service.FilesOfTCP)
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
		fd, pending, err := conn.Connect(at)
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
