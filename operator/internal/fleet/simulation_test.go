package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/pending"
)

// simulation is a cluster with one Fleet: Servers that start, take players, break
// and go, and a cache that shows all that late.
type simulation struct {
	t       *testing.T
	chance  *rand.Rand
	now     time.Time
	spec    v1alpha1.FleetSpec
	desired int32
	next    int
	version int64
	// real are the Servers as the API server has them, cached as the controller
	// sees them.
	real, cached map[types.UID]server
	writes       pending.Writes[server]
	backoff      backoff
	created      int
	log          []string
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{
		t: t, chance: rand.New(rand.NewPCG(seed, seed)), now: t0,
		real: map[types.UID]server{}, cached: map[types.UID]server{}, writes: pending.Writes[server]{},
	}
	s.spec.Replicas = &s.desired
	s.spec.ScaleDown.Order = []v1alpha1.ScaleDownOrder{v1alpha1.EmptiestFirst, v1alpha1.OldestFirst, v1alpha1.NewestFirst}[seed%3]
	if seed%2 == 0 {
		s.spec.UpdateStrategy = v1alpha1.FleetUpdateRolling
	}
	if seed%4 == 0 {
		s.spec.ScaleDown.Policy = v1alpha1.ScaleDownDelete
	}
	return s
}

func (s *simulation) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nwhat happened:\n%s", fmt.Sprintf(format, args...), join(s.log))
}

func join(lines []string) (all string) {
	for _, l := range lines[max(0, len(lines)-40):] {
		all += l + "\n"
	}
	return all
}

// put writes a Server, as the API server does.
func (s *simulation) put(o server) server {
	s.version++
	o.resourceVersion = fmt.Sprint(s.version)
	s.real[o.uid] = o
	return o
}

// pick is one of the Servers that pass.
func (s *simulation) pick(pass func(server) bool) (server, bool) {
	var uids []types.UID
	for uid, o := range s.real {
		if pass(o) {
			uids = append(uids, uid)
		}
	}
	if len(uids) == 0 {
		return server{}, false
	}
	slices.Sort(uids)
	return s.real[uids[s.chance.IntN(len(uids))]], true
}

// happen lets something happen in the world.
func (s *simulation) happen() {
	what := []string{"scale", "ready", "ready", "join", "join", "leave", "leave", "leave", "break", "lose", "return", "allocate", "release", "end", "kill", "by hand", "edit"}[s.chance.IntN(17)]
	calm := func(o server) bool { return !o.deleting && !o.unhealthy && !o.lost && !o.shutdown }
	playable := func(o server) bool { return calm(o) && o.ready }
	pass := map[string]func(server) bool{
		"scale":    func(server) bool { return true },
		"edit":     func(server) bool { return s.chance.IntN(3) == 0 },
		"ready":    func(o server) bool { return calm(o) && !o.ready },
		"join":     func(o server) bool { return playable(o) && !o.draining },
		"leave":    func(o server) bool { return o.players > 0 },
		"break":    func(o server) bool { return playable(o) && !o.allocated },
		"lose":     playable,
		"return":   func(o server) bool { return o.lost && !o.deleting },
		"allocate": playable,
		"release":  func(o server) bool { return o.allocated },
		"end":      playable,
		"kill":     calm,
		"by hand":  func(o server) bool { return calm(o) && !o.draining && !o.allocated && s.chance.IntN(4) == 0 },
	}[what]
	o, ok := s.pick(pass)
	if !ok && what != "scale" {
		return
	}
	s.log = append(s.log, fmt.Sprintf("%s: %s %s", s.now.Format(time.TimeOnly), what, o.name))
	switch what {
	case "scale":
		s.desired = s.chance.Int32N(12)
		s.log = append(s.log, fmt.Sprint("  to ", s.desired))
		return
	case "edit":
		s.edit()
		return
	case "ready":
		o.state, o.ready, o.reported, o.changed = v1alpha1.ServerReady, true, true, s.now
	case "join":
		o.players += 1 + s.chance.Int32N(3)
	case "leave":
		o.players = s.chance.Int32N(o.players)
	case "break":
		o.state, o.ready, o.unhealthy, o.changed = v1alpha1.ServerUnhealthy, false, true, s.now
	case "lose":
		o.ready, o.lost, o.changed = false, true, s.now
	case "return":
		o.ready, o.lost, o.changed = true, false, s.now
	case "allocate":
		o.allocated = true
	case "release":
		o.allocated = false
	case "end":
		o.shutdown, o.allocated = true, false
	case "kill":
		o.deleting = true
	case "by hand":
		o.draining = true
		o.generation++
	}
	o.allowed = o.reported && o.players == 0 && !o.allocated
	s.put(o)
}

// edit changes the Fleet's template.
func (s *simulation) edit() {
	for _, servers := range []map[types.UID]server{s.real, s.cached} {
		for uid, o := range servers {
			o.outdated = true
			servers[uid] = o
		}
	}
	for uid, w := range s.writes {
		w.Object.outdated = true
		s.writes[uid] = w
	}
}

// getReady lets all Servers get ready that start.
func (s *simulation) getReady() {
	for _, o := range s.real {
		if !o.ready && !o.deleting && !o.unhealthy && !o.lost && !o.shutdown {
			o.state, o.ready, o.reported, o.allowed, o.changed = v1alpha1.ServerReady, true, true, o.players == 0 && !o.allocated, s.now
			s.put(o)
		}
	}
}

// guard lets deleted Servers go that nobody plays on.
func (s *simulation) guard() {
	for uid, o := range s.real {
		if o.deleting && o.players == 0 {
			delete(s.real, uid)
		}
	}
}

// show lets the cache see some of what is new, or all of it.
func (s *simulation) show(all bool) {
	uids := slices.Concat(slices.Collect(maps.Keys(s.real)), slices.Collect(maps.Keys(s.cached)))
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		if !all && s.chance.IntN(3) > 0 {
			continue
		}
		if o, ok := s.real[uid]; ok {
			s.cached[uid] = o
		} else {
			delete(s.cached, uid)
		}
	}
}

// pass is one of the controller's, and says whether it wrote anything.
func (s *simulation) pass() bool {
	uids := slices.Sorted(maps.Keys(s.cached))
	servers := make([]server, 0, len(uids))
	for _, uid := range uids {
		servers = append(servers, s.cached[uid])
	}
	servers, _ = overlay.Over(s.writes, s.now, servers)
	s.backoff.learn(s.now, servers)
	p := makePlan(s.now, &s.spec, servers, s.backoff)
	if p.create > int(s.desired) {
		s.fail("%d are created for a Fleet of %d", p.create, s.desired)
	}
	s.check(servers, p)
	for _, o := range p.takeBack {
		s.write(o, "take back", func(o *server) { o.draining, o.ours = false, false; o.generation++ })
	}
	for range p.create {
		s.next++
		s.created++
		name := fmt.Sprintf("s%04d", s.next)
		o := s.put(server{name: name, uid: types.UID(name), created: s.now, generation: 1})
		s.writes[o.uid] = pending.Write[server]{Object: o, At: s.now, Kind: pending.Create}
		s.log = append(s.log, "  create "+name)
	}
	for _, o := range p.drain {
		s.write(o, "drain", func(o *server) { o.draining, o.ours = true, true; o.generation++ })
	}
	for _, o := range p.remove {
		s.write(o, "delete", func(o *server) { o.deleting = true })
	}
	m := &state{backoff: s.backoff}
	m.learn(s.now, p, outcome{})
	s.backoff = m.backoff
	return p.writes()
}

// check fails where a plan leaves too few Servers that are up.
func (s *simulation) check(servers []server, p plan) {
	s.t.Helper()
	up := func(o *server) bool { return o.up() && !o.draining && !o.deleting }
	before, after := 0, 0
	for i := range servers {
		if o := &servers[i]; up(o) {
			before++
			if !slices.Contains(p.remove, o) && !slices.Contains(p.drain, o) {
				after++
			}
		}
	}
	if after < min(before, int(s.desired)) {
		s.fail("of %d Servers that are up %d are left, of a Fleet of %d", before, after, s.desired)
	}
}

// write changes a Server unless it isn't any more as it was seen, and judges
// whether that was right.
func (s *simulation) write(seen *server, what string, change func(*server)) {
	is, ok := s.real[seen.uid]
	if !ok || is.resourceVersion != seen.resourceVersion {
		return // The API server refuses it.
	}
	s.log = append(s.log, fmt.Sprintf("  %s %s with %d players", what, is.name, is.players))
	switch {
	case what == "take back" && !is.ours:
		s.fail("%s was taken back and the Fleet didn't drain it", is.name)
	case what != "take back" && is.allocated:
		s.fail("%s is Allocated: %s", is.name, what)
	case what == "delete" && is.players > 0 && s.spec.ScaleDown.Policy != v1alpha1.ScaleDownDelete && !is.shutdown:
		s.fail("%s has %d players and is deleted", is.name, is.players)
	case what == "delete" && is.deleting:
		s.fail("%s is deleted a second time", is.name)
	}
	change(&is)
	is = s.put(is)
	kind := pending.Change
	if what == "delete" {
		kind = pending.Delete
	}
	s.writes[is.uid] = pending.Write[server]{Object: is, At: s.now, Kind: kind}
}

// active are the Servers that count.
func (s *simulation) active() (active, spared int) {
	for _, o := range s.real {
		if o.deleting || o.draining || o.unhealthy || o.lost || o.shutdown {
			continue
		}
		active++
		if o.allocated {
			spared++
		}
	}
	return active, spared
}

// TestWhateverHappensAFleetComesToRest plays at random with a Fleet. Whatever
// happens no occupied or Allocated Server is lost; and once nothing happens any
// more the Fleet has what it asks for and the controller has nothing to do.
func TestWhateverHappensAFleetComesToRest(t *testing.T) {
	for seed := range uint64(300) {
		s := newSimulation(t, seed)
		s.log = append(s.log, fmt.Sprint("seed ", seed))
		for range 200 {
			s.happen()
			if s.chance.IntN(2) == 0 {
				s.guard()
			}
			s.show(false)
			s.pass()
			s.now = s.now.Add(time.Duration(s.chance.IntN(3000)) * time.Millisecond)
		}
		// Nothing happens but what the controller does; nobody leaves.
		unchanged := 0
		for range 100 {
			s.now = s.now.Add(maxDelay)
			s.guard()
			s.getReady()
			s.show(true)
			if s.pass() {
				unchanged = 0
			} else if unchanged++; unchanged == 3 {
				break
			}
		}
		if unchanged < 3 {
			s.fail("seed %d: the controller never comes to rest", seed)
		}
		active, spared := s.active()
		if want := max(int(s.desired), spared); active != want {
			s.fail("seed %d: %d active Servers, want %d (%d of them Allocated)", seed, active, want, spared)
		}
		for _, o := range s.real {
			if s.spec.UpdateStrategy == v1alpha1.FleetUpdateRolling && o.outdated && o.up() && !o.allocated && !o.draining && !o.deleting {
				s.fail("seed %d: %s is of an earlier template", seed, o.name)
			}
		}
		if len(s.writes) > 0 {
			s.fail("seed %d: %d writes are remembered that the cache shows", seed, len(s.writes))
		}
	}
}

// TestALaggingCacheMakesNothingTwice has the controller look again and again at a
// cache that shows nothing of what it did.
func TestALaggingCacheMakesNothingTwice(t *testing.T) {
	s := newSimulation(t, 1)
	s.desired = 20
	for range 5 {
		s.pass()
	}
	if len(s.real) != 20 || s.created != 20 {
		t.Fatalf("%d Servers were created, want 20", s.created)
	}
	s.populate(1)
	s.desired = 15
	s.passBlind()
	if active, _ := s.active(); active != 15 {
		t.Fatalf("%d Servers are left after draining, want 15", active)
	}
	s.desired = 18
	s.passBlind() // The drained ones are stale in the cache, and nothing is made instead.
	if s.created != 20 {
		t.Errorf("%d Servers were created, want those 20", s.created)
	}
	s.populate(0)
	s.desired = 10
	s.passBlind()
	if active, _ := s.active(); active != 10 {
		t.Fatalf("%d Servers are left after deleting, want 10", active)
	}
}

// populate makes all Servers ready, with as many players, for all to see.
func (s *simulation) populate(players int32) {
	s.show(true)
	for uid, o := range s.real {
		o.state, o.ready, o.players, o.reported, o.allowed = v1alpha1.ServerReady, true, players, true, players == 0
		o.draining, o.ours = false, false
		s.cached[uid] = s.put(o)
	}
}

// passBlind makes passes over a cache that shows nothing that they do, and in
// which others are the first to go each time.
func (s *simulation) passBlind() {
	for range 5 {
		s.pass()
		for uid, o := range s.cached {
			if o.players > 0 {
				o.players = 1 + s.chance.Int32N(9)
			}
			o.created = t0.Add(time.Duration(s.chance.IntN(1000)) * time.Second)
			s.cached[uid] = o
		}
	}
}
