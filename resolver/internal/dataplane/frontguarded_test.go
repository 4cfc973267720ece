package dataplane

import (
	"bufio"
	"net"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/dataplane/tcp"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestWhoComesByAFrontIsCountedByTheServiceAlone(t *testing.T) {
	s := newShared(t)
	s.service("alpha", v1alpha1.ProtocolMinecraft, "alpha.example.com")
	rules := guard.NewRules(nil, []string{here + "/32"})
	rules.PerServiceRate = 2
	s.show("alpha", func(r *route.Route) { guarded(rules)(&r.Ports[0]) })
	s.terms("alpha", func(f *route.Front) { f.Guard = rules.Hidden() })
	join := login("alpha.example.com")
	held := func(n int) func() bool { return func() bool { return s.server.Clients() == n } }
	for n := range 2 {
		write(t, from(t, here, route.TCP, s.address), join)
		s.eventually("a player is held", held(n+1))
	}
	write(t, from(t, here, route.TCP, s.address), join)
	s.eventually("the service's third is refused", func() bool { return s.rig.refused(proto.ServiceRate) == 1 })
	if n := s.rig.refused(proto.Denied); n > 0 {
		t.Errorf("%v were denied by an address that may be a node's", n)
	}
}

func TestSlowHandshakesOfAFrontMakeRoomAndGiveBackWhatTheyTook(t *testing.T) {
	s := newShared(t)
	s.service("alpha", v1alpha1.ProtocolMinecraft, "alpha.example.com")
	join := login("alpha.example.com")
	files := s.server.Usage().Files
	var slow []net.Conn
	for range tcp.FrontHandshakes + 50 {
		c := from(t, here, route.TCP, s.address)
		write(t, c, join[:3])
		slow = append(slow, c)
	}
	s.eventually("the oldest made room", func() bool { return s.rig.refused(proto.Evicted) == 50 })
	write(t, from(t, here, route.TCP, s.address), join)
	s.eventually("a player is held", func() bool { return s.server.Clients() == 1 })
	for _, c := range slow {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	s.eventually("only the player's files are taken", func() bool { return s.server.Usage().Files == files+service.FilesOfTCP })
}

// Rules by address are for clients for whom no server is up.
func TestAProbeOfAnAwakeServiceIsNobodysWake(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.web("shop", "shop.example.com")()
	denied := guard.NewRules(nil, []string{elsewhere + "/32"})
	denied.SourceIPsPreserved = true
	s.show("shop", func(r *route.Route) {
		r.Balance = v1alpha1.BalanceSpread
		r.Ports[0].Probes = []proto.Probe{{Method: "GET", Path: "/healthz", Status: 204}}
	})
	s.terms("shop", func(f *route.Front) { f.Guard = denied })
	// Somebody else has found the server up.
	other := dialTCP(t, s.address)
	write(t, other, get("shop.example.com", "/"))
	if status, _ := nextResponse(t, bufio.NewReader(other)); status != 200 {
		t.Fatalf("/ is told %d", status)
	}
	c := from(t, elsewhere, route.TCP, s.address)
	for _, path := range []string{"/healthz", "/", "/healthz"} {
		write(t, c, get("shop.example.com", path))
		if status, _ := nextResponse(t, bufio.NewReader(c)); status != 200 {
			t.Errorf("%s is told %d", path, status)
		}
	}
}
