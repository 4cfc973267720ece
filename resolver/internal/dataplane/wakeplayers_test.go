package dataplane

import (
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestAPlayerWhoMayNotWakeIsToldSoAndWakesNothing(t *testing.T) {
	t.Parallel()
	for name, balance := range map[string]v1alpha1.Balance{"with handoff Direct": "", "with handoff Never": v1alpha1.BalanceSpread} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			address := r.serve("game", route.TCP, probed, speaks(v1alpha1.ProtocolMinecraft), func(p *route.Port) {
				p.Players = proto.NewPlayers("Ask Anna to start it.").Deny(proto.PackPlayers([]string{v1alpha1.PlayerDigest("Hazel")}))
			})
			r.balanced(balance)
			join := login("play.example.com")
			for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseWaking} {
				r.phase(phase)
				c := dialTCP(t, address)
				write(t, c, join)
				if text := string(readFrame(t, c)); !strings.Contains(text, "Ask Anna") {
					t.Errorf("while it is %s the player is told %q", phase, text)
				}
				expectEnd(t, c)
			}
			if n := r.refused(proto.Denied); n != 2 {
				t.Errorf("%v were denied, want 2", n)
			}
			r.phase(v1alpha1.PhaseAsleep)
			list := dialTCP(t, address)
			write(t, list, status("play.example.com"))
			if got := minecraftStatus(t, list); got.Description == "" {
				t.Errorf("the list shows %+v", got)
			}
			r.undisturbed()
			// Another one wakes it, and then all may join.
			began := time.Now()
			other := dialTCP(t, address)
			write(t, other, strings.Replace(join, "Hazel", "Hazle", 1))
			r.queued(1)
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, echo)
			r.phase(v1alpha1.PhaseAwake)
			r.backend(server, true)
			expect(t, other, strings.Replace(join, "Hazel", "Hazle", 1))
			c := dialTCP(t, address)
			write(t, c, join)
			expect(t, c, join)
			if s := r.sessions(); s.Sessions != 2 || s.LastActive.Before(began) {
				t.Errorf("it carries %+v, want both players", s)
			}
		})
	}
}
