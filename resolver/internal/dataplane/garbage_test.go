package dataplane

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestGarbageOfEveryLengthOnEveryProtocolIsSurvived(t *testing.T) {
	t.Parallel()
	const longest = 2048
	marks := map[v1alpha1.Protocol]string{
		v1alpha1.ProtocolMinecraft: recorded(t, v1alpha1.ProtocolMinecraft, "login_765"), v1alpha1.ProtocolBedrock: recorded(t, v1alpha1.ProtocolBedrock, "request1"),
		v1alpha1.ProtocolSource: recorded(t, v1alpha1.ProtocolSource, "info_request"), v1alpha1.ProtocolQuake3: recorded(t, v1alpha1.ProtocolQuake3, "getstatus"),
	}
	for protocol := range joins(t) {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			address := h.serve(attacked, protocol, func(r *route.Route) { r.Hold.Handshake = time.Second })
			before := h.before()
			random := rand.New(rand.NewChaCha8([32]byte{1}))
			garbage := func(i int) []byte {
				b := make([]byte, i%(longest+1))
				for j := range b {
					b[j] = byte(random.Uint32())
				}
				if i > longest {
					// It begins as if it was meant well.
					copy(b, marks[protocol][:min(len(marks[protocol]), 1+random.IntN(64))])
				}
				return b
			}
			if networkOf(protocol) == route.UDP {
				spoofed(t, 2*(longest+1), address, garbage)
			} else {
				for i := range 2 * (longest + 1) {
					c := dialTCP(t, address)
					_, _ = c.Write(garbage(i))
					_ = c.CloseWrite()
					_ = c.Close()
				}
			}
			h.played()
			if f := h.fares(); f.Held > 1000 {
				t.Errorf("garbage: %+v", f)
			}
			h.grownBy(before, 3*spare)
		})
	}
}

func TestTheSmallestAndTheLargestDatagramsAreCarriedAndBounded(t *testing.T) {
	t.Parallel()
	const largest = 65_507
	huge := bytes.Repeat([]byte("x"), largest-3) // The server's answers are larger by three.
	for protocol := range joins(t) {
		if networkOf(protocol) != route.UDP {
			continue
		}
		t.Run(string(protocol), func(t *testing.T) {
			h := newHost(t)
			address := h.serve(attacked, protocol, func(r *route.Route) {
				guarded(guard.Rules{PerSource: guard.Limits{Connections: 10}})(&r.Ports[0])
			})
			before := h.before()
			spoofed(t, 2000, address, func(i int) []byte { return huge[:len(huge)*(i%2)] })
			// From one source as well.
			c := from(t, here, route.UDP, address)
			for i := range 200 {
				_, _ = c.Write(huge[:len(huge)*(i%2)])
			}
			h.played()
			if f := h.fares(); f.HeldBytes > 1000*(largest+4) {
				t.Errorf("held are %+v", f)
			}
			h.grownBy(before, spare+1000*largest)
		})
	}
	t.Run("through to a server", func(t *testing.T) {
		r := newRig(t)
		address := r.serve("game", route.UDP)
		server := freeAddress(t, route.UDP)
		listenUDP(t, server)
		r.backend(server, true)
		r.phase(v1alpha1.PhaseAwake)
		c := dialUDP(t, address)
		for _, text := range []string{"", string(huge), "", string(huge)} {
			if _, err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			hear(t, c, "re:"+text)
		}
	})
}
