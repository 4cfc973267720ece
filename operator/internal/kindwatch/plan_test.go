package kindwatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func gvk(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}
}

func TestWhichWatchesBeginAndEnd(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	usual := []schema.GroupVersionKind{gvk("Usual")}
	named := observed{named: 1}
	open := observed{named: 1, open: true, synced: true}
	tried := observed{named: 1, open: true}
	type kinds = map[schema.GroupVersionKind]observed
	list := func(names ...string) (l []schema.GroupVersionKind) {
		for _, name := range names {
			l = append(l, gvk(name))
		}
		return l
	}
	many := kinds{}
	for i := range maxBegun + 1 {
		many[gvk(fmt.Sprintf("K%d", i))] = named
	}
	for name, c := range map[string]struct {
		kinds kinds
		most  int
		want  decision
	}{
		"nothing is named": {kinds{}, 2, decision{}},
		"one that is named begins": {
			kinds{gvk("A"): named}, 2, decision{begin: list("A")},
		},
		"one that is watched goes on": {
			kinds{gvk("A"): open}, 2, decision{},
		},
		"one that nobody names any more goes on for a while": {
			kinds{gvk("A"): {open: true, unnamedSince: now.Add(-grace + time.Second)}}, 2, decision{next: now.Add(time.Second)},
		},
		"and ends then": {
			kinds{gvk("A"): {open: true, unnamedSince: now.Add(-grace)}}, 2, decision{end: list("A")},
		},
		"one that isn't watched is forgotten at once": {
			kinds{gvk("A"): {unnamedSince: now, tries: 3, tried: now}}, 2, decision{forget: list("A")},
		},
		"one that could not be watched rests": {
			kinds{gvk("A"): {named: 1, tries: 1, tried: now}}, 2, decision{next: now.Add(firstRetry)},
		},
		"and rests longer each time": {
			kinds{gvk("A"): {named: 1, tries: 2, tried: now}}, 2, decision{next: now.Add(2 * firstRetry)},
		},
		"but not for ever": {
			kinds{gvk("A"): {named: 1, tries: 1000, tried: now}}, 2, decision{next: now.Add(lastRetry)},
		},
		"one that has rested is tried again": {
			kinds{gvk("A"): {named: 1, tries: 1000, tried: now.Add(-lastRetry)}}, 2, decision{begin: list("A")},
		},
		"no more are watched than the bound": {
			kinds{gvk("A"): open, gvk("B"): open, gvk("C"): named}, 2, decision{excess: list("C")},
		},
		"one that is only tried makes none too many": {
			kinds{gvk("A"): open, gvk("B"): tried, gvk("C"): named}, 2, decision{next: now.Add(burstPause)},
		},
		"the longest untried come first": {
			kinds{gvk("A"): {named: 1, tries: 9, tried: now.Add(-time.Hour)}, gvk("B"): {named: 1, tries: 9, tried: now.Add(-2 * time.Hour)}, gvk("C"): named},
			2,
			decision{begin: list("C", "B"), next: now.Add(burstPause)},
		},
		"one that is about to end still takes its room": {
			kinds{gvk("A"): {open: true, synced: true, unnamedSince: now}, gvk("B"): named}, 1, decision{excess: list("B"), next: now.Add(grace)},
		},
		"usual ones need no room, and take none": {
			kinds{gvk("A"): open, gvk("Usual"): named}, 1, decision{begin: list("Usual")},
		},
		"usual ones that are watched take no room": {
			kinds{gvk("A"): named, gvk("Usual"): open}, 1, decision{begin: list("A")},
		},
		"many begin a few at a time": {
			many, 32, decision{begin: list("K0", "K1", "K2", "K3", "K4", "K5", "K6", "K7"), next: now.Add(burstPause)},
		},
	} {
		got := decide(now, c.kinds, usual, c.most, burst{})
		got.burst = burst{}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(decision{}, burst{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Each end of a try has it decided anew, so that the bound must outlast a decision.
func TestABurstIsBoundedThoughItIsDecidedOften(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	kinds := map[schema.GroupVersionKind]observed{}
	for i := range 3 * maxBegun {
		kinds[gvk(fmt.Sprintf("K%02d", i))] = observed{named: 1}
	}
	begun := 0
	var lately burst
	for _, at := range []time.Duration{0, burstPause / 2, burstPause - 1} {
		d := decide(now.Add(at), kinds, nil, 1000, lately)
		begun, lately = begun+len(d.begin), d.burst
		for _, kind := range d.begin {
			kinds[kind] = observed{named: 1, tries: 1, tried: now.Add(at)}
		}
	}
	if begun != maxBegun {
		t.Errorf("%d begin within %s, want %d", begun, burstPause, maxBegun)
	}
	if d := decide(now.Add(burstPause), kinds, nil, 1000, lately); len(d.begin) != maxBegun {
		t.Errorf("%d begin in the next one, want %d", len(d.begin), maxBegun)
	}
}
