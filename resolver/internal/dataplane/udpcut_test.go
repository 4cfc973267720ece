package dataplane

import (
	"net"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// A client that falls silent in the middle of the game, after the handover, is
// counted; who leaves in any other way isn't.
func TestASessionThatIsCutShortIsCounted(t *testing.T) {
	t.Parallel()
	const idle = time.Second
	// More than the silence that is judged, which is idle/24 and momentStep.
	const goesOn = 400 * time.Millisecond
	awake := func(direct bool) func(*route.Route) {
		return func(rt *route.Route) { rt.Phase, rt.Direct = v1alpha1.PhaseAwake, direct }
	}
	cases := map[string]struct {
		// before and after are of the client's last datagram.
		before, after func(*route.Route)
		// goesOn is for how long the server sends on.
		goesOn time.Duration
		want   float64
	}{
		"the server goes on sending":                        {before: awake(true), after: awake(true), goesOn: goesOn, want: 1},
		"and the handover comes just then":                  {before: awake(false), after: awake(true), goesOn: goesOn, want: 1},
		"the server stops as well":                          {before: awake(true), after: awake(true)},
		"new clients come to the resolver":                  {before: awake(false), after: awake(false), goesOn: goesOn},
		"new clients come to the resolver again by the end": {before: awake(true), after: awake(false), goesOn: goesOn},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, udpIdle(idle))
			address := r.serve("game", route.UDP)
			server, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			r.backend(server.LocalAddr().String(), true)
			c := dialUDP(t, address)
			write(t, c, "a")
			buf := make([]byte, 64)
			_, peer, err := server.ReadFrom(buf)
			if err != nil {
				t.Fatal(err)
			}
			say := func() {
				if _, err := server.WriteTo([]byte("tick"), peer); err != nil {
					t.Error(err)
				}
			}
			say()
			hear(t, c, "tick")
			r.change(tc.before)
			write(t, c, "b")
			r.change(tc.after)
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for began := time.Now(); time.Since(began) < tc.goesOn; <-tick.C {
				say()
			}
			r.eventually("the session is over", func() bool { return r.sessions().Sessions == 0 })
			if got := r.metric("dormouse_resolver_sessions_cut_short_total", nil); got != tc.want {
				t.Errorf("%v sessions were cut short, want %v", got, tc.want)
			}
		})
	}
}
