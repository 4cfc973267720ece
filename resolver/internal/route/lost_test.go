package route

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func backendAt(number int, pod types.UID) Backend {
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(number >> 16), byte(number >> 8), byte(number)}), 7000)
	return Backend{Address: address, Pod: pod, Serving: true}
}

func TestLost(t *testing.T) {
	t.Parallel()
	one, two, three := backendAt(1, "a"), backendAt(2, "b"), backendAt(3, "c")
	ends := two
	ends.Serving, ends.Terminating = false, true
	for name, c := range map[string]struct{ before, now, lost []Backend }{
		"none was there":              {nil, []Backend{one}, nil},
		"nothing changed":             {[]Backend{one, two, three}, []Backend{one, two, three}, nil},
		"one is new":                  {[]Backend{two}, []Backend{one, two, three}, nil},
		"one is gone":                 {[]Backend{one, two, three}, []Backend{one, three}, []Backend{two}},
		"all are gone":                {[]Backend{one, two}, nil, []Backend{one, two}},
		"all are others":              {[]Backend{one, three}, []Backend{two}, []Backend{one, three}},
		"an address is another pod's": {[]Backend{one, two}, []Backend{one, backendAt(2, "c")}, []Backend{two}},
		"one that terminates is kept": {[]Backend{one, two}, []Backend{one, ends}, nil},
		"a pod that isn't known":      {[]Backend{backendAt(1, "")}, []Backend{backendAt(1, "")}, nil},
		"in any order":                {[]Backend{three, one, two}, []Backend{two, three}, []Backend{one}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := map[netip.AddrPort]bool{}
			for _, b := range c.lost {
				want[b.Address] = true
			}
			if got := (&Port{Backends: c.now}).Lost(c.before); !maps.Equal(got, want) {
				t.Errorf("lost %v, want %v", got, want)
			}
		})
	}
}

// Which backends are lost is found out under a lock that all services share.
func BenchmarkLost(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("backends=%d", n), func(b *testing.B) {
			var before, now []Backend
			for i := range n {
				backend := backendAt(i, types.UID(fmt.Sprint(i)))
				before = append(before, backend)
				now = append(now, backend)
			}
			now[n-1].Pod = "another"
			p := Port{Backends: now}
			b.ReportAllocs()
			for b.Loop() {
				if len(p.Lost(before)) != 1 {
					b.Fatal("one backend was lost")
				}
			}
		})
	}
}
