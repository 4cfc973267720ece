package startwindow

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var t0 = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func TestStartsAreBoundedOverAllFleets(t *testing.T) {
	var w Window
	big, small := fleetKey("big"), fleetKey("small")
	for i, step := range []struct {
		fleet    types.NamespacedName
		starting int
		at, now  time.Duration
		wants    int
		want     int
	}{
		{big, 0, 0, 0, 1000, Most},
		{small, 0, 0, 0, 1000, minStarting}, // one of few never waits for one of many
		{small, 3, 0, 0, 1000, minStarting - 3},
		{small, minStarting, 0, 0, 1000, 0},
		{big, 60, 0, time.Second, 10, 10},
		{big, 70, time.Second, time.Second, 1000, Most - 70 - minStarting},
		{big, 92, time.Second, time.Second, 1000, 0},
		// What the other started long ago counts no more, though it had no pass since.
		{big, 92, 2 * time.Second, Lasts, 1000, Most - 92},
		{small, 0, 0, Lasts, 2, 2},
		{big, 0, 0, Lasts, 0, 0},
		{small, 0, 0, Lasts, 0, 0},
	} {
		if got := w.Take(t0.Add(step.now), step.fleet, starting(step.starting, t0.Add(step.at)), step.wants); got != step.want {
			t.Errorf("step %d: %d of %s start, want %d", i, got, step.fleet.Name, step.want)
		}
	}
	if len(w.fleets) > 0 {
		t.Errorf("it keeps %v of Fleets that start nothing", w.fleets)
	}
}

// What a Fleet couldn't make leaves its place to others.
func TestARefusedStartLeavesItsPlace(t *testing.T) {
	var w Window
	w.Take(t0, fleetKey("refused"), nil, 100)
	w.Take(t0, fleetKey("refused"), starting(1, t0), 0)
	if got := w.Take(t0, fleetKey("another"), nil, 100); got != Most-1 {
		t.Errorf("%d of another Fleet start beside one, want %d", got, Most-1)
	}
}

// The first passes of many Fleets come before any second one.
func TestManyFleetsAtOnceStartInAWindow(t *testing.T) {
	var w Window
	all := 0
	for i := range 40 {
		all += w.Take(t0, fleetKey(fmt.Sprint(i)), nil, 100)
	}
	if want := Most + 39*minStarting; all != want {
		t.Errorf("%d Servers of 40 Fleets start at once, want %d", all, want)
	}
}

// starting are some Servers that were made at once.
func starting(count int, at time.Time) map[string]time.Time {
	servers := map[string]time.Time{}
	for i := range count {
		servers[fmt.Sprint(i)] = at
	}
	return servers
}

func fleetKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "games", Name: name}
}
