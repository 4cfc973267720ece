package gametype

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// simulation plays at random with a world.
type simulation struct {
	*world
	chance *rand.Rand
	// late is whether the controller sees things late, and the Fleets act late. If
	// it doesn't, Ready Servers may break: what is lost to that while nobody has seen
	// it is no fault of an update.
	late bool
	// broken are templates whose Servers don't get Ready.
	broken map[string]bool
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	chance := rand.New(rand.NewPCG(seed, seed))
	updates := []v1alpha1.UpdateSpec{
		step("1", "0"), step("25%", "0"), step("0", "1"), step("2", "1"), step("10%", "30%"), step("0", "20%"),
		retiring(step("1", "0"), time.Minute),
		{Strategy: v1alpha1.UpdateRecreate},
	}
	s := &simulation{
		world: newWorld(t, chance.Int32N(8), updates[chance.IntN(len(updates))]), chance: chance, late: seed%2 == 0, broken: map[string]bool{},
	}
	s.spec.RevisionHistoryLimit = new(chance.Int32N(3))
	s.stuck = func() bool { return s.late && chance.IntN(4) == 0 }
	return s
}

func (s *simulation) say(format string, args ...any) {
	s.log = append(s.log, s.now.Format(time.TimeOnly)+" "+fmt.Sprintf(format, args...)+"   "+s.state())
}

func (s *simulation) state() string {
	var b strings.Builder
	for _, f := range s.fleets() {
		ready := 0
		for _, server := range f.servers {
			if server.ready && !server.draining {
				ready++
			}
		}
		fmt.Fprintf(&b, " [%s wants %d, has %d, %d ready]", f.template, f.desired, len(f.servers), ready)
	}
	return b.String()
}

func (s *simulation) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nwhat happened:\n%s", fmt.Sprintf(format, args...), strings.Join(s.log[max(0, len(s.log)-40):], "\n"))
}

// pick is one of the Servers that pass.
func (s *simulation) pick(pass func(*realFleet, *gameServer) bool) *gameServer {
	var list []*gameServer
	for _, f := range s.fleets() {
		for _, server := range f.servers {
			if pass(f, server) {
				list = append(list, server)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[s.chance.IntN(len(list))]
}

// happen lets something happen in the world.
func (s *simulation) happen() {
	playable := func(_ *realFleet, o *gameServer) bool { return o.ready && !o.draining }
	switch n := s.chance.IntN(20); {
	case n == 0:
		s.template = string(rune('a' + s.chance.IntN(4)))
		s.broken[s.template] = s.chance.IntN(4) == 0
		s.say("template %s, broken %t", s.template, s.broken[s.template])
	case n == 1:
		s.replicas = s.chance.Int32N(9)
		s.say("replicas %d", s.replicas)
	case n < 9:
		if o := s.pick(func(f *realFleet, o *gameServer) bool { return !o.ready && !o.draining && !s.broken[f.template] }); o != nil {
			o.ready = true
			s.say("one gets ready")
		}
	case n < 12:
		if o := s.pick(playable); o != nil {
			o.players++
			s.say("one joins")
		}
	case n < 16:
		if o := s.pick(func(_ *realFleet, o *gameServer) bool { return o.players > 0 }); o != nil {
			o.players = s.chance.IntN(o.players)
			s.say("some leave")
		}
	case n == 16:
		if o := s.pick(playable); o != nil {
			o.allocated = true
			s.say("one is allocated")
		}
	case n < 19:
		if o := s.pick(func(_ *realFleet, o *gameServer) bool { return o.allocated }); o != nil {
			o.allocated = false
			s.say("one is released")
		}
	case !s.late:
		if o := s.pick(playable); o != nil {
			o.ready = false
			s.say("one breaks")
		}
	}
}

// look lets the controller see some of what is new, or all of it.
func (s *simulation) look(all bool) {
	if all {
		s.showAll()
		return
	}
	uids := slices.Collect(maps.Keys(s.cached))
	for _, f := range s.real {
		uids = append(uids, f.uid)
	}
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		if s.chance.IntN(3) == 0 {
			s.show(s.templateOf(uid), uid)
		}
	}
}

// sure is how many Ready Servers stay once each Fleet has done what it was told,
// stable how many of those the controller could know of: what gets Ready in the
// moment in which it is told to go can't be spared.
func (s *simulation) sure() (sure, stable int, desired map[types.UID]int32) {
	desired = map[types.UID]int32{}
	for _, f := range s.real {
		ready := 0
		for _, o := range f.servers {
			if o.ready && !o.draining {
				ready++
			}
		}
		stays := min(ready, int(f.desired))
		sure += stays
		stable += min(stays, int(s.cached[f.uid].ready))
		desired[f.uid] = f.desired
	}
	return sure, stable, desired
}

// total is how many Servers there are or will be that count.
func (s *simulation) total() int {
	n := 0
	for _, f := range s.real {
		active := 0
		for _, o := range f.servers {
			if !o.draining && !o.spared && !o.allocated {
				active++
			}
		}
		if f.template == s.template {
			active = 0 // Its Fleet makes them exactly as many.
		}
		n += max(int(f.desired), active)
	}
	return n
}

// check makes a pass of the controller and checks what it did.
func (s *simulation) check() bool {
	sure, stable, desired := s.sure()
	p := s.pass()
	if p.writes() {
		s.say("  step: %s", p.why)
	}
	nowSure, nowStable, nowDesired := s.sure()
	raised := false
	for uid, n := range nowDesired {
		raised = raised || n > desired[uid]
	}
	most, least := s.bounds()
	if s.spec.Update.Strategy == v1alpha1.UpdateRecreate {
		s.checkRecreate(raised)
		most, least = int(s.replicas), 0
	}
	if nowStable < stable && nowSure < least {
		s.fail("%d Ready Servers of %d are left, which is fewer than %d", nowSure, sure, least)
	}
	if total := s.total(); raised && total > most {
		s.fail("there will be %d Servers, which is more than %d", total, most)
	}
	if s.lost > 0 {
		s.fail("%d Servers with players were ended", s.lost)
	}
	return p.writes()
}

// checkRecreate fails where new Servers come too early.
func (s *simulation) checkRecreate(raised bool) {
	for _, f := range s.real {
		for _, o := range f.servers {
			if raised && f.template != s.template && !o.draining && !o.spared && !o.allocated {
				s.fail("new Servers come while one of %s takes players", f.template)
			}
		}
	}
}

// TestWhateverHappensAGameTypeComesToRest plays at random with a GameType.
// Whatever happens an update leaves enough Ready Servers, makes no more than it
// may, and ends nobody's game; and once nothing happens any more all Servers that
// take players are of the newest revision, and the controller has nothing to do.
func TestWhateverHappensAGameTypeComesToRest(t *testing.T) {
	for seed := range uint64(800) {
		s := newSimulation(t, seed)
		s.say("seed %d, %+v", seed, boundsOf(&s.spec))
		for range 300 {
			s.happen()
			for _, f := range s.fleets() {
				if !s.late || s.chance.IntN(2) == 0 {
					s.act(f)
				}
			}
			if !s.late {
				for _, f := range s.fleets() {
					for s.act(f) {
					}
				}
			}
			s.look(!s.late)
			s.check()
			s.now = s.now.Add(time.Duration(s.chance.IntN(5000)) * time.Millisecond)
		}
		s.rest(seed)
	}
}

// rest lets the world calm down, and looks at what is there in the end.
func (s *simulation) rest(seed uint64) {
	s.t.Helper()
	s.broken, s.stuck = map[string]bool{}, nil
	unchanged := 0
	for range 200 {
		s.now = s.now.Add(time.Second)
		acted := false
		for _, f := range s.fleets() {
			for _, o := range f.servers {
				o.ready, o.allocated = true, false
			}
			acted = s.act(f) || acted
		}
		s.look(true)
		if s.check() || acted {
			unchanged = 0
		} else if unchanged++; unchanged == 3 {
			break
		}
	}
	if unchanged < 3 {
		s.fail("seed %d: the controller never comes to rest", seed)
	}
	for _, f := range s.real {
		active := 0
		for _, o := range f.servers {
			if !o.draining {
				active++
			}
		}
		want := 0
		if f.template == s.template {
			want = int(s.replicas)
		}
		if active != want {
			s.fail("seed %d: %s has %d active Servers, want %d", seed, f.template, active, want)
		}
	}
	if _, ok := s.real[s.template]; !ok {
		s.fail("seed %d: there is no Fleet of %s", seed, s.template)
	}
	if len(s.writes) > 0 {
		s.fail("seed %d: %d writes are remembered that the cache shows", seed, len(s.writes))
	}
}

// TestALaggingCacheMakesNothingTwice has the controller look again and again at a
// cache that shows nothing of what it did.
func TestALaggingCacheMakesNothingTwice(t *testing.T) {
	w := newWorld(t, 4, step("1", "0"))
	for i := range 5 {
		if p := w.pass(); p.writes() != (i == 0) {
			t.Fatalf("pass %d: %+v", i, p)
		}
	}
	f := w.real["a"]
	for w.act(f) {
	}
	for _, s := range f.servers {
		s.ready = true
	}
	w.act(f)
	w.showAll()
	w.pass()
	w.template = "b"
	for range 5 {
		w.pass()
	}
	// Going back before the cache shows b must not forget that there is one.
	w.template = "a"
	w.replicas = 5
	for range 5 {
		w.pass()
	}
	if a, b := w.real["a"].desired, w.real["b"].desired; a+b > 6 {
		t.Errorf("a has %d and b %d, which is more than 5 and a surge of 1", a, b)
	}
}
