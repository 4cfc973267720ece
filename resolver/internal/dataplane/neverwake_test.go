package dataplane

import (
	"bufio"
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// neverWakes is a port of a service that no client wakes: while it sleeps that is.
func neverWakes(asleep bool) func(*route.Port) {
	return func(p *route.Port) {
		p.Guard, p.Players = guard.Rules{Nobody: asleep}, nil
		if asleep {
			p.Players = proto.NewPlayers("").Allow(nil)
		}
	}
}

func TestClientsOfAServiceThatTheyNeverWakeAreRefusedWhileItSleeps(t *testing.T) {
	for protocol, join := range joins(t) {
		t.Run(string(protocol), func(t *testing.T) {
			r := newRig(t)
			network := networkOf(protocol)
			address := r.serve("game", network, speaks(protocol), probed, neverWakes(true))
			for i, phase := range []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseFallingAsleep} {
				r.phase(phase)
				c := from(t, here, network, address)
				write(t, c, join)
				r.eventually("it is refused", func() bool { return r.refused(proto.Denied) == float64(i+1) })
				switch protocol {
				case v1alpha1.ProtocolHTTP:
					expectForbidden(t, c)
				case v1alpha1.ProtocolMinecraft:
					if text := string(readFrame(t, c)); !strings.Contains(text, "you may not wake it up") {
						t.Errorf("the player is told %q", text)
					}
				case v1alpha1.ProtocolTCP:
					expectGone(t, c)
				default:
				}
			}
			r.undisturbed()
			if s := r.sessions(); !s.LastActive.IsZero() {
				t.Errorf("the service was active at %s", s.LastActive)
			}
		})
	}
}

// Who only looks is answered as ever.
func TestAServiceThatNobodyWakesIsSeenAsleep(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP, speaks(v1alpha1.ProtocolMinecraft), probed, neverWakes(true))
	list := dialTCP(t, address)
	write(t, list, status("play.example.com"))
	if got := minecraftStatus(t, list); got.Description == "" {
		t.Errorf("the list shows %+v", got)
	}
	if n := r.refused(proto.Denied); n > 0 {
		t.Errorf("%v were denied, want none", n)
	}
	r.undisturbed()
}

func TestAProbeOfAServiceThatNobodyWakesIsAnswered(t *testing.T) {
	r := newRig(t)
	address := r.serve("web", route.TCP, speaksHTTP, neverWakes(true))
	c := dialTCP(t, address)
	write(t, c, probe)
	if code, _, body := answer(t, bufio.NewReader(c)); code != 200 {
		t.Errorf("the probe got %d, %q", code, body)
	}
	r.undisturbed()
}

// Once somebody else has woken it, clients wait for it as for any other.
func TestClientsOfAServiceThatItsOwnerWakesWaitForIt(t *testing.T) {
	r := newRig(t)
	r.phase(v1alpha1.PhaseWaking)
	address := r.serve("game", route.TCP, probed, neverWakes(false))
	c := dialTCP(t, address)
	write(t, c, "hello")
	r.queued(1)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	expect(t, c, "hello")
}

// A connection may be older than the wake, or than the sleep: what counts is what is now.
func TestAConnectionThatWasOpenBeforeTheWakeWaitsForIt(t *testing.T) {
	r := newRig(t)
	address := r.serve("web", route.TCP, speaksHTTP, neverWakes(true))
	c := dialTCP(t, address)
	in := bufio.NewReader(c)
	write(t, c, probe)
	if code, _, body := answer(t, in); code != 200 {
		t.Fatalf("the probe got %d, %q", code, body)
	}
	r.change(func(rt *route.Route) {
		rt.Phase = v1alpha1.PhaseWaking
		neverWakes(false)(&rt.Ports[0])
	})
	write(t, c, request)
	r.queued(1)
	server := freeAddress(t, route.TCP)
	webServer(t, server, "I am up")
	r.backend(server, true)
	if code, _, body := answer(t, in); code != 200 || body != "I am up" {
		t.Errorf("the request got %d, %q", code, body)
	}
}

func TestAConnectionThatWasOpenBeforeTheSleepDoesNotEndIt(t *testing.T) {
	r := newRig(t)
	r.phase(v1alpha1.PhaseWaking)
	address := r.serve("web", route.TCP, speaksHTTP, neverWakes(false))
	c := dialTCP(t, address)
	in := bufio.NewReader(c)
	write(t, c, probe)
	if code, _, body := answer(t, in); code != 200 {
		t.Fatalf("the probe got %d, %q", code, body)
	}
	r.change(func(rt *route.Route) {
		rt.Phase = v1alpha1.PhaseAsleep
		neverWakes(true)(&rt.Ports[0])
	})
	write(t, c, request)
	expectForbidden(t, c)
	r.undisturbed()
}
