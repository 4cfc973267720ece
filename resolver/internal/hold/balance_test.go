package hold

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	of := func(players, capacity int) Load { return Load{Players: players, Capacity: capacity, Counts: true} }
	sessions := func(n int) Load { return Load{Sessions: n} }
	cases := map[string]struct {
		backends []Load
		// down are backends that take nobody.
		down           map[int]bool
		start          int
		spread, packed int
	}{
		"no backends":                          {spread: -1, packed: -1},
		"one backend":                          {backends: []Load{of(0, 10)}},
		"the emptiest, the fullest":            {backends: []Load{of(5, 10), of(2, 10), of(8, 10)}, spread: 1, packed: 2},
		"a full one gets nobody":               {backends: []Load{of(10, 10), of(3, 10), of(4, 10)}, spread: 1, packed: 2},
		"one above its capacity gets nobody":   {backends: []Load{of(12, 10), of(3, 10)}, spread: 1, packed: 1},
		"all are full":                         {backends: []Load{of(10, 10), of(4, 4)}, spread: -1, packed: -1},
		"who just came counts":                 {backends: []Load{{Players: 9, Capacity: 10, Counts: true, Fresh: 1}, of(1, 10)}, spread: 1, packed: 1},
		"one that is down gets nobody":         {backends: []Load{of(0, 10), of(9, 10), of(5, 10)}, down: map[int]bool{0: true, 1: true}, spread: 2, packed: 2},
		"all are down":                         {backends: []Load{of(0, 10)}, down: map[int]bool{0: true}, spread: -1, packed: -1},
		"sizes differ: what counts is room":    {backends: []Load{of(10, 100), of(9, 10), of(1, 20)}, spread: 0, packed: 1},
		"nothing is reported: sessions count":  {backends: []Load{sessions(3), sessions(1), sessions(7)}, spread: 1, packed: 2},
		"room that isn't known is without end": {backends: []Load{of(1, 10), sessions(500)}, spread: 1, packed: 0},
		"a game that reports no players": {
			backends: []Load{{Capacity: 4, Sessions: 4}, {Capacity: 4, Sessions: 3}, {Capacity: 4, Sessions: 1}}, spread: 2, packed: 1,
		},
		"a game that counts knows better than sessions do": {
			backends: []Load{{Capacity: 4, Sessions: 8, Players: 2, Counts: true}, {Capacity: 4, Sessions: 1, Players: 3, Counts: true}}, packed: 1,
		},
		"of several alike Spread takes the next, Packed the first": {
			backends: []Load{of(2, 10), of(2, 10), of(2, 10)}, start: 1, spread: 1, packed: 0,
		},
		"Spread begins anew behind the last": {backends: []Load{of(2, 10), of(2, 10), of(3, 10)}, start: 2, spread: 0, packed: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			load := func(i int) (Load, bool) { return tc.backends[i], !tc.down[i] }
			if got := Choose(v1alpha1.BalanceSpread, len(tc.backends), tc.start, load); got != tc.spread {
				t.Errorf("Spread picks %d, want %d", got, tc.spread)
			}
			if got := Choose(v1alpha1.BalancePacked, len(tc.backends), tc.start, load); got != tc.packed {
				t.Errorf("Packed picks %d, want %d", got, tc.packed)
			}
		})
	}
}

// A crowd comes between two reports.
func TestACrowdIsSharedOut(t *testing.T) {
	t.Parallel()
	for policy, want := range map[v1alpha1.Balance][]int{
		v1alpha1.BalanceSpread: {6, 7, 7}, v1alpha1.BalancePacked: {4, 8, 8},
	} {
		backends, next := []Load{{Players: 3, Capacity: 8, Counts: true}, {Players: 5, Capacity: 8, Counts: true}, {Capacity: 8, Counts: true}}, 0
		for range 12 {
			at := Choose(policy, len(backends), next, func(i int) (Load, bool) { return backends[i], true })
			backends[at].Fresh++
			next = (at + 1) % len(backends)
		}
		var got []int
		for _, s := range backends {
			got = append(got, s.Expected())
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: players (-want +got):\n%s", policy, diff)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	q := &Queue{}
	type step func(l *load)
	report := func(current int) step {
		return func(l *load) { l.report(route.Players{Current: current, Capacity: 10}) }
	}
	var slots []*Slot
	come := func(seconds int) step {
		return func(l *load) { slots = append(slots, (&backend{load: l}).takeSlot(q, at(seconds))) }
	}
	leave := func(i int) step { return func(*load) { slots[i].Leave(); slots[i].Leave() } }
	cases := map[string]struct {
		steps []step
		now   int
		want  int
	}{
		"nobody":                                  {steps: nil, want: 0},
		"who came isn't reported yet":             {steps: []step{report(3), come(0), come(0)}, want: 5},
		"who is reported isn't counted twice":     {steps: []step{report(3), come(0), come(0), report(5)}, want: 5},
		"a report of one of two":                  {steps: []step{report(3), come(0), come(0), report(4)}, want: 5},
		"a report that was under way":             {steps: []step{report(3), come(0), report(3)}, want: 4},
		"who left before the report":              {steps: []step{report(3), come(0), come(1), leave(0)}, want: 4},
		"who left after it is in it for a moment": {steps: []step{report(3), come(0), report(4), leave(0)}, want: 4},
		"and not for ever":                        {steps: []step{report(3), come(0), report(4), leave(0), report(3)}, want: 3},
		"others left meanwhile":                   {steps: []step{report(3), come(0), report(1)}, want: 2},
		"who is never reported doesn't play":      {steps: []step{report(3), come(0)}, now: 15, want: 3},
		"but for as long as a report may take":    {steps: []step{report(3), come(0)}, now: 14, want: 4},
		"a game that reports nobody":              {steps: []step{report(0), come(0), come(0)}, now: 60, want: 2},
		"who played before the first report":      {steps: []step{come(0), report(3)}, want: 4},
		"a game without a word":                   {steps: []step{come(0), come(1), leave(1)}, now: 60, want: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			slots = nil
			l := &load{}
			for _, s := range tc.steps {
				s(l)
			}
			if got := l.at(at(tc.now)).Expected(); got != tc.want {
				t.Errorf("%d players are expected, want %d", got, tc.want)
			}
			for _, s := range slots {
				s.Leave()
			}
			if l.sessions != 0 || len(l.fresh) != 0 {
				t.Errorf("%d sessions and %d fresh ones are left of nobody", l.sessions, len(l.fresh))
			}
		})
	}
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("backends=%d", n), func(b *testing.B) {
			r := &route.Route{Balance: v1alpha1.BalancePacked, Phase: v1alpha1.PhaseAwake}
			p := route.Port{Name: "game", Network: route.TCP, Probed: true}
			for i := range n {
				p.Backends = append(p.Backends, route.Backend{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 7000), Serving: true})
			}
			r.Ports = []route.Port{p}
			q := New(r, Options{})
			defer q.Close()
			b.ReportAllocs()
			for b.Loop() {
				g, ok := q.Pick(PortID{"game", route.TCP})
				if !ok {
					b.Fatal("nobody was picked")
				}
				g.Slot.Leave()
			}
		})
	}
}
