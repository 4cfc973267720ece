package dataplane

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// A port takes one file for as long as its socket is open, and gives it back once:
// else clients would be let in beyond the limit of files after some services were
// removed.
func TestAPortsFileIsGivenBackOnce(t *testing.T) {
	r := newRig(t, udpIdle(3*time.Second))
	used := func(want int) {
		t.Helper()
		r.eventually("the files are given back", func() bool { return r.server.Usage().Files == want })
	}
	for range 3 {
		r.route.Ports = nil
		r.serve("a", route.TCP)
		r.serve("b", route.UDP)
		r.serve("c", route.UDP)
		used(3)
		r.change(func(rt *route.Route) { rt.Ports = rt.Ports[:2] })
		used(2)
		r.server.Remove(r.route.UID)
		used(0)
	}
	// A session keeps its port's socket beyond the port.
	r.route.Ports = nil
	address := r.serve("a", route.UDP)
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	c := dialUDP(t, address)
	write(t, c, "x")
	hear(t, c, "re:x")
	r.eventually("the client is relayed", func() bool { return r.sessions().Sessions == 1 })
	r.server.Remove(r.route.UID)
	if n := r.server.Usage().Files; n != 1+service.FilesOfUDP {
		t.Errorf("%d files are counted while a session has its port's, want its own, too", n)
	}
	used(0)
}
