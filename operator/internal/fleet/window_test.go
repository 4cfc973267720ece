package fleet

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func fleetKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "games", Name: name}
}

func TestStartsAreBoundedOverAllFleets(t *testing.T) {
	var w window
	big, small := fleetKey("big"), fleetKey("small")
	for i, step := range []struct {
		fleet    types.NamespacedName
		starting int
		at, now  time.Duration
		wants    int
		want     int
	}{
		{big, 0, 0, 0, 1000, maxStarting},
		{small, 0, 0, 0, 1000, minStarting}, // one of few never waits for one of many
		{small, 3, 0, 0, 1000, minStarting - 3},
		{small, minStarting, 0, 0, 1000, 0},
		{big, 60, 0, time.Second, 10, 10},
		{big, 70, time.Second, time.Second, 1000, maxStarting - 70 - minStarting},
		{big, 92, time.Second, time.Second, 1000, 0},
		// What the other started long ago counts no more, though it had no pass since.
		{big, 92, 2 * time.Second, startingFor, 1000, maxStarting - 92},
		{small, 0, 0, startingFor, 2, 2},
		{big, 0, 0, startingFor, 0, 0},
		{small, 0, 0, startingFor, 0, 0},
	} {
		if got := w.take(t0.Add(step.now), step.fleet, step.starting, t0.Add(step.at), step.wants); got != step.want {
			t.Errorf("step %d: %d of %s start, want %d", i, got, step.fleet.Name, step.want)
		}
	}
	if len(w.fleets) > 0 {
		t.Errorf("it keeps %v of Fleets that start nothing", w.fleets)
	}
}

// What a Fleet couldn't make leaves its place to others.
func TestARefusedStartLeavesItsPlace(t *testing.T) {
	var w window
	w.take(t0, fleetKey("refused"), 0, time.Time{}, 100)
	w.take(t0, fleetKey("refused"), 1, t0, 0)
	if got := w.take(t0, fleetKey("another"), 0, time.Time{}, 100); got != maxStarting-1 {
		t.Errorf("%d of another Fleet start beside one, want %d", got, maxStarting-1)
	}
}

// The first passes of many Fleets come before any second one.
func TestManyFleetsAtOnceStartInAWindow(t *testing.T) {
	var w window
	all := 0
	for i := range 40 {
		all += w.take(t0, fleetKey(fmt.Sprint(i)), 0, time.Time{}, 100)
	}
	if want := maxStarting + 39*minStarting; all != want {
		t.Errorf("%d Servers of 40 Fleets start at once, want %d", all, want)
	}
}

// A Fleet of a thousand whose Servers are up after some time never has more starting than may, and
// is whole as soon as that allows.
func TestALargeFleetStartsInAWindow(t *testing.T) {
	const desired, boot, step = 1000, 900 * time.Millisecond, windowRetry
	for name, boot := range map[string]time.Duration{"a quick game": boot, "a game that takes minutes": time.Hour} {
		t.Run(name, func(t *testing.T) {
			var w window
			s, made := times{}, map[string]time.Time{}
			spec := v1alpha1.FleetSpec{Replicas: new(int32(desired))}
			now := t0
			for ; len(made) < desired && now.Sub(t0) < time.Minute; now = now.Add(step) {
				var servers []server
				for name, at := range made {
					state := v1alpha1.ServerStarting
					if now.Sub(at) >= boot {
						state = v1alpha1.ServerReady
					}
					servers = append(servers, server{name: name, uid: types.UID(name), created: at, state: state})
				}
				s.up(now, servers)
				p := makePlan(now, &spec, servers, backoff{})
				p.limit(w.take(now, fleetKey("big"), len(s), s.last(), p.create))
				for range p.create {
					name := fmt.Sprint("server-", len(made))
					made[name], s[name] = now, now
				}
				if len(s) > maxStarting {
					t.Fatalf("%d start at once, want %d at most", len(s), maxStarting)
				}
				if p.create == 0 && len(s) < maxStarting && len(made) < desired {
					t.Fatalf("%d start and there is room, but none is made", len(s))
				}
			}
			most := time.Duration(desired/maxStarting) * (min(boot, startingFor) + step)
			if took := now.Sub(t0); len(made) < desired || took > most {
				t.Errorf("%d were made within %s, want %d within %s", len(made), took, desired, most)
			}
		})
	}
}

func TestALargeFleetGoesInAWindow(t *testing.T) {
	var servers []server
	going := times{"gone": t0}
	for i := range 1000 {
		s := server{name: fmt.Sprint(i), uid: types.UID(fmt.Sprint(i)), created: t0, allowed: true, state: v1alpha1.ServerReady}
		switch {
		case i < 150:
			s.deleting, going[s.name] = true, t0
		case i < 300: // these have been going for long
			s.deleting, going[s.name] = true, t0.Add(-goingFor)
		}
		servers = append(servers, s)
	}
	going.gone(t0, servers)
	p := makePlan(t0, &v1alpha1.FleetSpec{Replicas: new(int32(0))}, servers, backoff{})
	if p.limitRemovals(len(going)); len(p.remove) != maxGoing-150 || p.requeueAfter.Duration() > windowRetry {
		t.Errorf("%d are deleted beside 150 that go, and it looks again after %s", len(p.remove), p.requeueAfter.Duration())
	}
}

func TestALimitedPlanLooksAgain(t *testing.T) {
	p := plan{create: 5, places: []int32{0, 1, 2, 3, 4}}
	p.limit(2)
	if p.create != 2 || len(p.places) != 2 || p.requeueAfter.Duration() != windowRetry {
		t.Errorf("it makes %d at %v and looks again after %s", p.create, p.places, p.requeueAfter.Duration())
	}
	q := plan{create: 2}
	if q.limit(2); q.create != 2 || q.requeueAfter.Duration() != 0 {
		t.Errorf("one with room makes %d and looks again after %s", q.create, q.requeueAfter.Duration())
	}
}
