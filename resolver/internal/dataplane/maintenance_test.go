package dataplane

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func downUntil(until time.Time) func(*route.Port) {
	return func(p *route.Port) { p.Guard = guard.Rules{DownUntil: until} }
}

func TestClientsOfAServiceThatIsKeptAsleepAreRefused(t *testing.T) {
	for protocol, join := range joins(t) {
		t.Run(string(protocol), func(t *testing.T) {
			r := newRig(t)
			network := networkOf(protocol)
			address := r.serve("game", network, speaks(protocol), probed, downUntil(time.Now().Add(time.Hour)))
			for i, phase := range []v1alpha1.Phase{v1alpha1.PhaseAsleep, v1alpha1.PhaseFallingAsleep} {
				r.phase(phase)
				c := from(t, here, network, address)
				write(t, c, join)
				r.eventually("it is refused", func() bool { return r.refused(proto.Maintenance) == float64(i+1) })
				switch protocol {
				case v1alpha1.ProtocolHTTP:
					code, header, body := answer(t, bufio.NewReader(c))
					if code != 503 || header.Get("Retry-After") != "3600" || !strings.Contains(body, "down for maintenance until") {
						t.Errorf("the client got %d, %v, %q", code, header, body)
					}
				case v1alpha1.ProtocolMinecraft:
					if text := string(readFrame(t, c)); !strings.Contains(text, "down for maintenance until") {
						t.Errorf("the player is told %q", text)
					}
				case v1alpha1.ProtocolTCP:
					expectGone(t, c)
				default:
				}
			}
			r.undisturbed()
		})
	}
}

// Where a connection alone counts no request is read before it waits. It is for the answer.
func TestWhoIsToldOfMaintenanceIsHeardFirst(t *testing.T) {
	r := newRig(t)
	onConnect := func(p *route.Port) { p.WakeOnConnect = true }
	address := r.serve("web", route.TCP, speaks(v1alpha1.ProtocolHTTP), downUntil(time.Now().Add(time.Hour)), onConnect)
	c := dialTCP(t, address)
	write(t, c, request)
	if code, _, body := answer(t, bufio.NewReader(c)); code != 503 || !strings.Contains(body, "down for maintenance until") {
		t.Errorf("the client got %d, %q", code, body)
	}
	r.undisturbed()
}

// Nobody changes the route when the time is over.
func TestAServiceCanBeWokenOnceItsTimeIsOver(t *testing.T) {
	r := newRig(t)
	until := time.Now().Add(time.Second)
	address := r.serve("game", route.TCP, probed, downUntil(until))
	c := dialTCP(t, address)
	write(t, c, "hello")
	expectGone(t, c)
	r.undisturbed()
	r.eventually("the time is over", func() bool { return time.Now().After(until) })
	c = dialTCP(t, address)
	write(t, c, "hello")
	r.queued(1)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	r.phase(v1alpha1.PhaseAwake)
	expect(t, c, "hello")
}
