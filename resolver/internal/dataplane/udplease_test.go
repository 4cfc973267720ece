package dataplane

import (
	"slices"
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// A UDP port gets another name, another protocol, or another service, while somebody
// plays by it. Who comes then is served at once, and who plays goes on.
func TestAUDPPortThatChangesIsOpenToNewcomers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *rig){
		"its name":     func(r *rig) { r.change(func(rt *route.Route) { rt.Ports[0].Name = "other" }) },
		"its protocol": func(r *rig) { r.change(func(rt *route.Route) { rt.Ports[0].Protocol = v1alpha1.ProtocolSource }) },
		"its service": func(r *rig) {
			ports := r.route.Ports
			r.change(func(rt *route.Route) { rt.Ports = nil })
			next := r.route
			next.UID, next.Name, next.Service, next.Ports = "uid-2", "arena", "arena", ports
			r.server.Update(&next)
			r.route = next
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			address := r.serve("game", route.UDP, probed)
			server := freeAddress(t, route.UDP)
			s := listenUDP(t, server)
			r.backend(server, true)
			r.phase(v1alpha1.PhaseAwake)
			first := r.route.UID
			player := dialUDP(t, address)
			play(t, player, "a", "b")
			for range 3 {
				change(r)
				for _, port := range r.server.Routes(string(r.route.UID)).Routes[0].Ports {
					if !port.Listening {
						t.Fatalf("the port does not listen: %s", port.Error)
					}
				}
				play(t, player, "still here")
				play(t, dialUDP(t, address), "c", "d")
			}
			s.mu.Lock()
			var all []string
			for _, texts := range s.from {
				all = append(all, strings.Join(texts, ","))
			}
			for text, want := range map[string]int{"a,b" + strings.Repeat(",still here", 3): 1, "c,d": 3} {
				if got := len(slices.DeleteFunc(slices.Clone(all), func(said string) bool { return said != text })); got != want {
					t.Errorf("%d clients said %q to the server, want %d; all: %q", got, text, want, all)
				}
			}
			s.mu.Unlock()
			r.server.mu.Lock()
			for _, sv := range r.server.services {
				if len(sv.closed) > 3 {
					t.Errorf("%d closed ports are kept", len(sv.closed))
				}
			}
			r.server.mu.Unlock()
			// All is given back in the end.
			r.server.Remove(first)
			r.server.Remove(r.route.UID)
			r.server.Close()
			if files, sessions := r.server.Usage().Files, r.server.Usage().UDPSessions; files != 0 || sessions != 0 || r.server.closing.Len() != 0 {
				t.Errorf("%d files, %d sessions and %d sockets in the end", files, sessions, r.server.closing.Len())
			}
		})
	}
}

// A session that began while its port had another name ends with its server, too.
func TestASessionOfARenamedPortEndsWithItsServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address := r.serve("game", route.UDP, probed)
	server := freeAddress(t, route.UDP)
	listenUDP(t, server)
	r.backend(server, true)
	r.phase(v1alpha1.PhaseAwake)
	play(t, dialUDP(t, address), "a", "b")
	for _, name := range []string{"other", "another"} {
		r.change(func(rt *route.Route) { rt.Ports[0].Name = name })
	}
	if n := r.server.Usage().UDPSessions; n != 1 {
		t.Fatalf("%d sessions", n)
	}
	r.change(func(rt *route.Route) { rt.Ports[0].Backends = nil })
	r.eventually("the session has ended", func() bool { return r.server.Usage().UDPSessions == 0 })
	// Both at once.
	r.backend(server, true)
	play(t, dialUDP(t, address), "c", "d")
	r.change(func(rt *route.Route) { rt.Ports[0].Name, rt.Ports[0].Backends = "game", nil })
	r.eventually("the session has ended", func() bool { return r.server.Usage().UDPSessions == 0 })
}
