package hold

import (
	"net/netip"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/route"
)

// Packets are lost in bursts. A backend is left alone once a client that began after
// such a loss hears nothing either, and nobody has connected meanwhile.
func TestALostPacketSetsNoServerAside(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	type failure struct{ began, ended int }
	for name, c := range map[string]struct {
		reached  []int // after the failure of the same index
		failures []failure
		want     bool
	}{
		"one alone":                    {failures: []failure{{0, 250}}},
		"many at once":                 {failures: []failure{{0, 250}, {10, 260}, {200, 450}}},
		"one after the other":          {failures: []failure{{0, 250}, {250, 500}}, want: true},
		"somebody connected meanwhile": {failures: []failure{{0, 250}, {250, 500}}, reached: []int{0, 300}},
		"somebody connected between":   {failures: []failure{{0, 250}, {600, 850}}, reached: []int{300}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &backend{Backend: route.Backend{Serving: true}, up: true}
			other := &backend{Backend: route.Backend{Serving: true, Address: netip.MustParseAddrPort("10.244.1.10:7777")}, up: true}
			p := &port{backends: []*backend{s, other}}
			p.group()
			for i, f := range c.failures {
				if i < len(c.reached) && c.reached[i] > 0 && c.reached[i] < f.ended {
					Release{backend: s}.Reached(at(c.reached[i]))
				}
				p.silent(s, at(f.began), at(f.ended))
				if i < len(c.reached) && c.reached[i] > f.ended {
					Release{backend: s}.Reached(at(c.reached[i]))
				}
			}
			if got := !s.aside.IsZero(); got != c.want {
				t.Errorf("the backend is left alone: %v, want %v", got, c.want)
			}
		})
	}
}
