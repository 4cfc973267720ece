package hold

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func routeTo(backends ...route.Backend) *route.Route {
	return &route.Route{Phase: v1alpha1.PhaseAwake, Ports: []route.Port{{Name: "game", Network: route.TCP, Backends: backends}}}
}

func backendAt(number int, pod types.UID) route.Backend {
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(number >> 16), byte(number >> 8), byte(number)}), 7000)
	return route.Backend{Address: address, Pod: pod, Serving: true}
}

// A new version of the route keeps what is known of each address, as long as it is the same pod's.
func TestWhatIsKnownOfABackendIsKeptByItsAddress(t *testing.T) {
	t.Parallel()
	one, two, three, four := backendAt(1, "a"), backendAt(2, "b"), backendAt(3, "c"), backendAt(4, "d")
	full := two
	full.Serving = false
	for name, c := range map[string]struct {
		now    []route.Backend
		upOf   []bool
		aside  bool // whether the first one is still left alone
		resets bool
	}{
		"nothing changed":                {[]route.Backend{one, two, three}, []bool{true, true, true}, true, false},
		"one is new":                     {[]route.Backend{one, two, three, four}, []bool{true, true, true, false}, true, true},
		"one is new, and comes before":   {[]route.Backend{backendAt(0, "e"), one}, []bool{false, true}, false, true},
		"one is gone":                    {[]route.Backend{one, three}, []bool{true, true}, true, true},
		"all are others":                 {[]route.Backend{four}, []bool{false}, false, true},
		"none is left":                   {nil, nil, false, true},
		"an address is another pod's":    {[]route.Backend{one, backendAt(2, "e"), three}, []bool{true, false, true}, true, true},
		"one serves no more":             {[]route.Backend{one, full, three}, []bool{true, false, true}, true, true},
		"the first one is another pod's": {[]route.Backend{backendAt(1, "e"), two, three}, []bool{false, true, true}, false, true},
		"they come in any order":         {[]route.Backend{three, two, one}, []bool{true, true, true}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := New(routeTo(one, two, three), Options{})
			defer q.Close()
			p := q.port(PortID{"game", route.TCP})
			for _, s := range p.backends {
				s.up = true
			}
			p.backends[0].aside = time.Now().Add(time.Hour)
			p.tries = 3
			q.Update(routeTo(c.now...))
			if len(p.backends) != len(c.now) {
				t.Fatalf("%d backends, want %d", len(p.backends), len(c.now))
			}
			for i, s := range p.backends {
				if s.Backend != c.now[i] || s.up != c.upOf[i] {
					t.Errorf("backend %d is %+v, up %v; want %+v, up %v", i, s.Backend, s.up, c.now[i], c.upOf[i])
				}
			}
			if len(p.backends) > 0 && p.backends[0].aside.IsZero() == c.aside {
				t.Errorf("that the first one is left alone is %v, want %v", !c.aside, c.aside)
			}
			if (p.tries == 0) != c.resets {
				t.Errorf("%d tries are counted; want them to begin anew: %v", p.tries, c.resets)
			}
		})
	}
}

// A route changes under a lock that all services share.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("backends=%d", n), func(b *testing.B) {
			var versions [2]*route.Route
			for v := range versions {
				var backends []route.Backend
				for i := range n {
					backends = append(backends, backendAt(i, types.UID(fmt.Sprint(i))))
				}
				backends[n-1].Serving = v == 0
				versions[v] = routeTo(backends...)
			}
			q := New(versions[0], Options{})
			defer q.Close()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.Update(versions[i%2])
			}
		})
	}
}
