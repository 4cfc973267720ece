package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/fleet/startwindow"
)

var t0 = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// at is a time some seconds after t0.
func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// has is a Ready Server with a number of players; it is as old as its name is low.
func has(name string, players int32, change ...func(*server)) server {
	s := server{
		name: name, uid: types.UID(name), created: at(int(name[0])), state: v1alpha1.ServerReady,
		players: players, capacity: 10, allowed: players == 0, reported: true, ready: true, changed: t0,
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func starting(s *server) {
	s.state, s.ready, s.reported, s.allowed = v1alpha1.ServerStarting, false, false, false
}

func allocated(s *server) { s.state, s.allocated, s.allowed = v1alpha1.ServerAllocated, true, false }

func broken(s *server) { s.state, s.ready, s.unhealthy = v1alpha1.ServerUnhealthy, false, true }

func lost(s *server) { s.ready, s.lost = false, true }

func ended(s *server) { s.shutdown = true }

func deleting(s *server) { s.deleting = true }

func byHand(s *server) { s.state, s.draining = v1alpha1.ServerDraining, true }

func byFleet(s *server) { s.state, s.draining, s.ours = v1alpha1.ServerDraining, true, true }

func denies(s *server) { s.allowed = false }

func outdated(s *server) { s.outdated = true }

// decided is what a plan says, by name and sorted.
type decided struct {
	TakeBack, Drain, Remove, Broken, Ended []string
	Create, Held, Spared                   int
	Refused                                bool
	Again                                  time.Duration
}

func decide(p plan) decided {
	return decided{
		TakeBack: names(p.takeBack), Drain: names(p.drain), Remove: names(p.remove), Broken: names(p.broken), Ended: names(p.ended),
		Create: p.create, Held: p.held, Spared: p.spared, Refused: p.refused, Again: p.requeueAfter.Duration(),
	}
}

func names(list []*server) []string {
	var names []string
	for _, s := range list {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

func TestPlan(t *testing.T) {
	tests := map[string]struct {
		replicas int32
		update   v1alpha1.FleetUpdateStrategy
		order    v1alpha1.ScaleDownOrder
		policy   v1alpha1.ScaleDownPolicy
		servers  []server
		backoff  backoff
		want     decided
	}{
		"a new Fleet creates all":                   {replicas: 3, want: decided{Create: 3}},
		"a Fleet that has enough does nothing":      {replicas: 2, servers: []server{has("a", 0), has("b", 3, starting)}},
		"one that is missing is created":            {replicas: 2, servers: []server{has("a", 0)}, want: decided{Create: 1}},
		"one that is being deleted is replaced":     {replicas: 1, servers: []server{has("a", 2, deleting)}, want: decided{Create: 1}},
		"one that a person drained is replaced":     {replicas: 1, servers: []server{has("a", 2, byHand)}, want: decided{Create: 1}},
		"one whose node is lost is replaced":        {replicas: 1, servers: []server{has("a", 2, lost)}, want: decided{Create: 1}},
		"one that only starts is no reason to make": {replicas: 1, servers: []server{has("a", 0, starting)}},

		"what the Fleet drained is taken back, and the rest made": {
			replicas: 3, servers: []server{has("a", 2, byFleet)}, want: decided{TakeBack: []string{"a"}, Create: 2},
		},
		"the fullest is taken back first": {
			replicas: 1, servers: []server{has("a", 2, byFleet), has("b", 5, byFleet), has("c", 1, byFleet)},
			want: decided{TakeBack: []string{"b"}},
		},
		"what a person drained is not taken back": {
			replicas: 2, servers: []server{has("a", 9, byHand), has("b", 1, byFleet)}, want: decided{TakeBack: []string{"b"}, Create: 1},
		},
		"what is broken, lost or being deleted is not taken back": {
			replicas: 1, servers: []server{has("a", 9, byFleet, broken), has("b", 1, byFleet, deleting), has("c", 1, byFleet, lost)},
			want: decided{Create: 1},
		},
		"what drained and is empty goes even when one is missing": {
			replicas: 1, servers: []server{has("a", 0, byFleet)}, want: decided{Remove: []string{"a"}, Create: 1},
		},
		"three drained ones go as they become empty": {
			servers: []server{has("a", 1, byFleet), has("b", 0, byHand), has("c", 3, byFleet)}, want: decided{Remove: []string{"b"}},
		},

		"a scale to zero deletes the empty and drains the rest": {
			servers: []server{has("a", 0), has("b", 4), has("c", 0), has("d", 0), has("e", 0)},
			want:    decided{Remove: []string{"a", "c", "d", "e"}, Drain: []string{"b"}},
		},
		"policy Delete deletes the occupied, too": {
			policy: v1alpha1.ScaleDownDelete, servers: []server{has("a", 0), has("b", 4)}, want: decided{Remove: []string{"a", "b"}},
		},
		"an Allocated one is never chosen, and that is said": {
			policy: v1alpha1.ScaleDownDelete, servers: []server{has("a", 0, allocated), has("b", 1), has("c", 3, allocated)},
			want: decided{Remove: []string{"b"}, Spared: 2},
		},
		"those that were never ready go before the empty": {
			replicas: 2, servers: []server{has("a", 0), has("b", 0, starting), has("c", 0)}, want: decided{Remove: []string{"b"}},
		},
		"the deletable go before those with fewer players": {
			replicas: 1, servers: []server{has("a", 0, denies), has("b", 5, func(s *server) { s.allowed = true })}, want: decided{Remove: []string{"b"}},
		},
		"the one with fewest players goes": {
			replicas: 2, servers: []server{has("a", 5), has("b", 2), has("c", 3)}, want: decided{Drain: []string{"b"}},
		},
		"of equals the youngest goes":                 {replicas: 1, servers: []server{has("a", 2), has("b", 2)}, want: decided{Drain: []string{"b"}}},
		"of equals the oldest goes, if asked for":     {replicas: 1, order: v1alpha1.OldestFirst, servers: []server{has("a", 2), has("b", 2)}, want: decided{Drain: []string{"a"}}},
		"of equals the youngest goes, if asked for":   {replicas: 1, order: v1alpha1.NewestFirst, servers: []server{has("b", 2), has("a", 2)}, want: decided{Drain: []string{"b"}}},
		"an empty one that denies is drained":         {servers: []server{has("a", 0, denies)}, want: decided{Drain: []string{"a"}}},
		"a starting one that has spoken is drained":   {servers: []server{has("a", 0, starting, func(s *server) { s.reported = true })}, want: decided{Drain: []string{"a"}}},
		"one that nobody has looked at yet goes":      {servers: []server{{name: "a"}}, want: decided{Remove: []string{"a"}}},
		"a stopped one with its disk counts":          {replicas: 1, servers: []server{has("a", 0, func(s *server) { s.state = v1alpha1.ServerStopped })}},
		"an Allocated one that drains is not deleted": {servers: []server{has("a", 0, byFleet, allocated, func(s *server) { s.allowed = true })}},

		"a broken one with players is drained and replaced": {
			replicas: 1, servers: []server{has("a", 3, broken)}, want: decided{Drain: []string{"a"}, Broken: []string{"a"}, Create: 1},
		},
		"a broken one that is empty is deleted and replaced": {
			replicas: 1, servers: []server{has("a", 0, broken)}, want: decided{Remove: []string{"a"}, Broken: []string{"a"}, Create: 1},
		},
		"a broken one that drains waits for its players": {replicas: 1, servers: []server{has("a", 3, byFleet, broken), has("b", 0)}},
		"a game that asked for its end is deleted and replaced": {
			replicas: 1, servers: []server{has("a", 3, ended)}, want: decided{Remove: []string{"a"}, Ended: []string{"a"}, Create: 1},
		},
		"a lost one and its replacement stay":  {replicas: 1, servers: []server{has("a", 3, lost), has("b", 0)}},
		"a lost one that is back is too many":  {replicas: 1, servers: []server{has("a", 3), has("b", 0)}, want: decided{Remove: []string{"b"}}},
		"no more are kept lost than asked for": {replicas: 1, servers: []server{has("a", 3, lost), has("b", 0, lost), has("c", 0)}, want: decided{Remove: []string{"b"}}},
		"a lost Allocated one stays":           {servers: []server{has("a", 0, lost, allocated)}},

		"the replacements of failed ones wait, and others don't": {
			replicas: 5, servers: []server{has("a", 1)}, backoff: backoff{debt: 3, notBefore: at(4)},
			want: decided{Create: 1, Held: 3, Again: 4 * time.Second},
		},
		"no more wait than are missing": {
			replicas: 2, servers: []server{has("a", 1)}, backoff: backoff{debt: 3, notBefore: at(4)}, want: decided{Held: 1, Again: 4 * time.Second},
		},
		"they wait no longer than they have to": {replicas: 2, backoff: backoff{debt: 2, notBefore: t0}, want: decided{Create: 2}},
		"what the API server refused waits": {
			replicas: 2, backoff: backoff{refusedUntil: at(2)}, want: decided{Refused: true, Again: 2 * time.Second},
		},
		"taking back needs no API server that takes Servers": {
			replicas: 1, servers: []server{has("a", 1, byFleet)}, backoff: backoff{refusedUntil: at(2)}, want: decided{TakeBack: []string{"a"}},
		},

		"Servers of an earlier template stay": {replicas: 2, servers: []server{has("a", 0, outdated), has("b", 0)}},
		"Rolling begins with a quarter more": {
			replicas: 5, update: v1alpha1.FleetUpdateRolling,
			servers: []server{has("a", 0, outdated), has("b", 0, outdated), has("c", 3, outdated), has("d", 0, outdated), has("e", 1, outdated)},
			want:    decided{Create: 2},
		},
		"Rolling waits for new ones to get ready": {
			replicas: 2, update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 0, outdated), has("b", 0, outdated), has("c", 0, starting)},
		},
		"Rolling replaces as many as have got ready, the empty first": {
			replicas: 3, update: v1alpha1.FleetUpdateRolling,
			servers: []server{has("a", 2, outdated), has("b", 0, outdated), has("c", 1, outdated), has("d", 0)},
			want:    decided{Remove: []string{"b"}, Create: 1},
		},
		"Rolling drains who has players": {
			replicas: 1, update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 2, outdated), has("b", 0)}, want: decided{Drain: []string{"a"}},
		},
		"Rolling deletes them where the policy is to": {
			replicas: 1, update: v1alpha1.FleetUpdateRolling, policy: v1alpha1.ScaleDownDelete,
			servers: []server{has("a", 2, outdated), has("b", 0)}, want: decided{Remove: []string{"a"}},
		},
		"Rolling takes those that still start, once there are enough without": {
			replicas: 2, update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 0, outdated, starting), has("b", 0, outdated), has("c", 0)},
			want: decided{Remove: []string{"a"}, Create: 1},
		},
		"Rolling leaves Allocated ones, which count": {
			replicas: 2, update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 3, outdated, allocated), has("b", 0)},
		},
		"Rolling doesn't take back what is of an earlier template": {
			replicas: 2, update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 3, outdated, byFleet), has("b", 1, byFleet)},
			want: decided{TakeBack: []string{"b"}, Create: 1},
		},
		"OnDelete takes it back": {replicas: 1, servers: []server{has("a", 3, outdated, byFleet)}, want: decided{TakeBack: []string{"a"}}},
		"Rolling doesn't make up for what is about to be too many": {
			replicas: 1, update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 0, outdated), has("b", 0, outdated), has("c", 0, starting)},
			want: decided{Remove: []string{"b"}},
		},
		"Rolling at zero lets all go": {
			update: v1alpha1.FleetUpdateRolling, servers: []server{has("a", 2, outdated), has("b", 0, outdated), has("c", 1), has("d", 0, starting)},
			want: decided{Remove: []string{"b", "d"}, Drain: []string{"a", "c"}},
		},
		"a template that never gets ready has the surge, and costs nothing": {
			replicas: 4, update: v1alpha1.FleetUpdateRolling,
			servers: []server{has("a", 0, outdated), has("b", 0, outdated), has("c", 1, outdated), has("d", 0, outdated), has("e", 0, starting)},
		},
		"with fewer asked for, new ones that aren't ready are too many": {
			replicas: 2, update: v1alpha1.FleetUpdateRolling,
			servers: []server{has("a", 0, outdated), has("b", 0, outdated), has("c", 0, starting), has("d", 0, starting)},
			want:    decided{Remove: []string{"d"}},
		},
		"a large Fleet is made in steps": {replicas: 250, want: decided{Create: 100, Again: nextPass}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.FleetSpec{Replicas: &test.replicas, UpdateStrategy: test.update, ScaleDown: v1alpha1.ScaleDownSpec{Order: test.order, Policy: test.policy}}
			if diff := cmp.Diff(test.want, decide(makePlan(t0, spec, test.servers, test.backoff))); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALargeFleetGoesInSteps(t *testing.T) {
	servers := make([]server, 350)
	for i := range servers {
		servers[i] = has(string(rune('a'+i)), int32(i%2))
	}
	p := makePlan(t0, &v1alpha1.FleetSpec{Replicas: new(int32)}, servers, backoff{})
	if len(p.remove) != maxWrites || len(p.drain) != maxWrites || p.requeueAfter.Duration() != nextPass {
		t.Errorf("%d are deleted and %d drained in one pass, the next in %s; want %d each, and at once", len(p.remove), len(p.drain), p.requeueAfter, maxWrites)
	}
}

// A Fleet of a thousand whose Servers are up after some time never has more starting than may, and
// is whole as soon as that allows.
func TestALargeFleetStartsInAWindow(t *testing.T) {
	const desired, boot, step = 1000, 900 * time.Millisecond, windowRetry
	for name, boot := range map[string]time.Duration{"a quick game": boot, "a game that takes minutes": time.Hour} {
		t.Run(name, func(t *testing.T) {
			var w startwindow.Window
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
				p.limit(w.Take(now, types.NamespacedName{Namespace: "games", Name: "big"}, s, p.create))
				for range p.create {
					name := fmt.Sprint("server-", len(made))
					made[name], s[name] = now, now
				}
				if len(s) > startwindow.Most {
					t.Fatalf("%d start at once, want %d at most", len(s), startwindow.Most)
				}
				if p.create == 0 && len(s) < startwindow.Most && len(made) < desired {
					t.Fatalf("%d start and there is room, but none is made", len(s))
				}
			}
			most := time.Duration(desired/startwindow.Most) * (min(boot, startwindow.Lasts) + step)
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
