package gametype

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/places"
)

// holding is a Fleet with places.
func holding(name, list string, change ...func(*fleet)) *fleet {
	f := &fleet{name: name, uid: types.UID(name), places: list, observed: true, everReady: true}
	if list != "" {
		f.desired = int32(len(mustPlaces(list)))
	}
	for _, c := range change {
		c(f)
	}
	return f
}

func mustPlaces(list string) []int32 {
	all, err := places.Wanted(&v1alpha1.FleetSpec{Places: list, Replicas: new(int32(100))})
	if err != nil {
		panic(err)
	}
	return all
}

func untried(f *fleet) { f.everReady = false }

func (o occupant) with(players int32) occupant { o.players = players; return o }

func upOf(name string) occupant       { return occupant{fleet: types.UID(name), up: true} }
func startingOf(name string) occupant { return occupant{fleet: types.UID(name)} }
func drainingOf(name string) occupant { return occupant{fleet: types.UID(name), up: true, going: true} }

func TestPlacesAreAssigned(t *testing.T) {
	three := bounds{replicas: 3, most: 3, least: 2}
	one := bounds{replicas: 1, most: 1, least: 0}
	for name, c := range map[string]struct {
		bounds  bounds
		trial   string
		current *fleet
		old     []*fleet
		at      occupants
		want    string
		left    []string
	}{
		"the first Servers": {
			bounds: three, current: holding("a", "", untried), want: "0-2",
		},
		"a wake finds the places of the sleep": {
			bounds: three, current: holding("a", ""), want: "0-2",
		},
		"a wake while a Server of the same revision is still going": {
			bounds: one, current: holding("a", ""), at: occupants{0: drainingOf("a")}, want: "0",
		},
		"a scale-down frees the highest places": {
			bounds: bounds{replicas: 1, most: 1}, current: holding("a", "0-2"), at: occupants{0: upOf("a"), 1: upOf("a"), 2: upOf("a")}, want: "0",
		},
		"a scale-down in the middle of an update frees the highest places": {
			bounds: one, current: holding("b", "2"), old: []*fleet{holding("a", "0-1")},
			at: occupants{0: upOf("a").with(1), 1: upOf("a"), 2: upOf("b")}, want: "", left: []string{""},
		},
		"an update begins with the place of the fewest players, the highest first": {
			bounds: three, current: holding("b", "", untried), old: []*fleet{holding("a", "0-2")},
			at: occupants{0: upOf("a"), 1: upOf("a"), 2: upOf("a").with(1)}, left: []string{"0,2"},
		},
		"a place waits until the Server before has left its disk": {
			bounds: three, current: holding("b", "", untried), old: []*fleet{holding("a", "0,2")},
			at: occupants{0: upOf("a"), 1: drainingOf("a"), 2: upOf("a")}, left: []string{"0,2"},
		},
		"and changes over then": {
			bounds: three, current: holding("b", "", untried), old: []*fleet{holding("a", "0,2")},
			at: occupants{0: upOf("a"), 2: upOf("a")}, want: "1", left: []string{"0,2"},
		},
		"the next one waits until it is up": {
			bounds: three, current: holding("b", "1", untried), old: []*fleet{holding("a", "0,2")},
			at: occupants{0: upOf("a"), 1: startingOf("b"), 2: upOf("a")}, want: "1", left: []string{"0,2"},
		},
		"and goes on": {
			bounds: three, current: holding("b", "1"), old: []*fleet{holding("a", "0,2")},
			at: occupants{0: upOf("a"), 1: upOf("b"), 2: upOf("a")}, want: "1", left: []string{"0"},
		},
		"an Allocated Server is left alone": {
			bounds: one, current: holding("b", ""), old: []*fleet{holding("a", "0")},
			at: occupants{0: {fleet: "a", up: true, allocated: true}}, left: []string{"0"},
		},
		"Servers of an earlier revision that aren't up cost nothing": {
			bounds: three, current: holding("b", "0"), old: []*fleet{holding("a", "1-2")},
			at: occupants{0: startingOf("b"), 1: startingOf("a"), 2: upOf("a")}, want: "0", left: []string{"2"},
		},
		"a scale-up while a revision is on trial adds good Servers": {
			bounds: bounds{replicas: 5, most: 5, least: 4}, trial: t0.Format(time.RFC3339),
			current: holding("b", "1", untried), old: []*fleet{holding("a", "0,2")},
			at: occupants{0: upOf("a"), 1: startingOf("b"), 2: upOf("a")}, want: "1", left: []string{"0,2-4"},
		},
		"a revision that failed gives its place back": {
			bounds: one, trial: trialFailed, current: holding("b", "0", untried), old: []*fleet{holding("a", "")},
			at: occupants{0: startingOf("b")}, left: []string{""},
		},
		"to the one before, once its Server is gone": {
			bounds: one, trial: trialFailed, current: holding("b", "", untried), old: []*fleet{holding("a", "")},
			left: []string{"0"},
		},
		"which keeps it": {
			bounds: one, trial: trialFailed, current: holding("b", "", untried), old: []*fleet{holding("a", "0")},
			at: occupants{0: upOf("a")}, left: []string{"0"},
		},
		"Servers from before there were places are spared like others": {
			bounds: three, current: holding("b", "", untried), old: []*fleet{holding("a", "0-2", func(f *fleet) { f.ready = 3 })},
			want: "2", left: []string{"0-1"},
		},
		"asleep there are none": {
			bounds: bounds{}, current: holding("b", "0"), old: []*fleet{holding("a", "1")}, left: []string{""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want, left := assign(c.bounds, c.trial, c.current, c.old, c.at)
			var got []string
			for _, l := range left {
				got = append(got, places.Format(l))
			}
			if diff := cmp.Diff(append([]string{c.want}, c.left...), append([]string{places.Format(want)}, got...)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// placed is a GameType whose Servers have disks, with Fleets that are imitated.
type placed struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	spec   v1alpha1.GameTypeSpec
	// template names the revision that is asked for; those whose names begin with x never get
	// ready.
	template string
	fleets   map[string]*fleet
	at       occupants
	number   int64
	log      []string
}

func (w *placed) say(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *placed) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf(format+"\n%s", append(args, strings.Join(w.log, "\n"))...)
}

// pass is one of the GameType's controller.
func (w *placed) pass() {
	var list []fleet
	for _, name := range slices.Sorted(mapKeys(w.fleets)) {
		f := *w.fleets[name]
		f.current = name == w.template
		list = append(list, f)
	}
	p := makePlan(w.now, &w.spec, list, w.at, w.number)
	w.number = max(w.number, p.number)
	if p.create {
		w.fleets[w.template] = &fleet{name: w.template, uid: types.UID(w.template), observed: true, number: p.number, desired: p.first, places: p.firstPlaces}
		w.say("create %s with %s", w.template, p.firstPlaces)
	}
	for _, c := range p.change {
		f := w.fleets[c.fleet.name]
		f.desired, f.places, f.number, f.trial, f.retiringSince = c.replicas, c.places, c.number, c.trial, c.retiringSince
		w.say("%s has %q, trial %q", f.name, f.places, f.trial)
	}
	for _, f := range p.remove {
		delete(w.fleets, f.name)
	}
	w.check()
}

// check checks that no place has two Fleets.
func (w *placed) check() {
	holder := map[int32]string{}
	for name, f := range w.fleets {
		for _, place := range f.heldPlaces() {
			if other, taken := holder[place]; taken {
				w.fail("place %d is %s's and %s's", place, other, name)
			}
			holder[place] = name
		}
	}
}

// act is what Fleets, Servers and players do in a moment.
func (w *placed) act() {
	for place := range int32(8) {
		holder := ""
		for name, f := range w.fleets {
			if slices.Contains(f.heldPlaces(), place) {
				holder = name
			}
		}
		o, there := w.at[place]
		switch {
		case !there && holder != "":
			w.at[place] = occupant{fleet: types.UID(holder)}
		case !there:
		case string(o.fleet) != holder && o.players == 0:
			// It goes; its Pod takes a while.
			if o.going {
				delete(w.at, place)
			} else {
				o.going = true
				w.at[place] = o
			}
		case string(o.fleet) != holder:
			o.going = true
			w.at[place] = o
		case o.going:
			o.going = false // taken back
			w.at[place] = o
		case !o.up && !strings.HasPrefix(holder, "x"):
			o.up = true
			w.at[place] = o
			w.fleets[holder].everReady = true
		}
	}
	for _, f := range w.fleets {
		f.active, f.ready, f.draining = 0, 0, 0
		for _, o := range w.at {
			switch {
			case o.fleet != f.uid:
			case o.going:
				f.draining++
			default:
				f.active++
				if o.up {
					f.ready++
				}
			}
		}
	}
}

func mapKeys(m map[string]*fleet) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// happen lets something happen.
func (w *placed) happen() {
	place := int32(w.random.IntN(8))
	o, there := w.at[place]
	switch w.random.IntN(9) {
	case 0:
		w.spec.Replicas = new(int32(w.random.IntN(6)))
		w.say("replicas %d", *w.spec.Replicas)
	case 1:
		w.template = []string{"a", "b", "c", "x", "x2"}[w.random.IntN(5)]
		w.say("template %s", w.template)
	case 2:
		if there && o.up && !o.going {
			o.players++
			w.at[place] = o
		}
	case 3, 4:
		if there && o.players > 0 {
			o.players--
			w.at[place] = o
		}
	case 5:
		if there && o.up && o.players == 0 {
			o.up = false // it crashed, or its node is lost
			w.at[place] = o
		}
	case 6:
		w.now = w.now.Add(time.Duration(w.random.IntN(400)) * time.Second)
	default:
		w.act()
	}
}

// Whatever happens, no two Fleets have one place, no place changes over while its last Server is
// there, and in the end all places are up: of the template's revision, or, where that never gets
// ready, of the last one that did.
func TestWhateverHappensPlacesComeToRest(t *testing.T) {
	for seed := range uint64(400) {
		w := &placed{
			t: t, random: rand.New(rand.NewPCG(seed, 1)), now: t0, template: "a", fleets: map[string]*fleet{}, at: occupants{},
			spec: v1alpha1.GameTypeSpec{
				Replicas: new(int32(3)), Update: step("25%", []string{"0", "1", "2"}[seed%3]), RevisionHistoryLimit: new(int32(5)),
			},
		}
		w.spec.Update.ProgressDeadline = &metav1.Duration{Duration: 10 * time.Minute}
		w.spec.Template.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world", MountPath: "/world"}}
		for range 20 {
			w.pass()
			w.act()
		}
		for range 100 {
			w.happen()
			before := map[int32]types.UID{}
			for place, o := range w.at {
				before[place] = o.fleet
			}
			w.pass()
			for place, o := range w.at {
				if had, ok := before[place]; ok && had != o.fleet {
					w.fail("seed %d: place %d went from %s to %s", seed, place, had, o.fleet)
				}
			}
		}
		for place, o := range w.at {
			o.players = 0
			w.at[place] = o
		}
		if *w.spec.Replicas == 0 {
			w.spec.Replicas = new(int32(2))
		}
		for range 60 {
			w.now = w.now.Add(time.Minute)
			w.pass()
			w.act()
		}
		for place := range *w.spec.Replicas {
			if o := w.at[place]; !o.up || o.going {
				w.fail("seed %d: place %d is %+v in the end", seed, place, o)
			} else if f := w.fleets[w.template]; !strings.HasPrefix(w.template, "x") && f.trial != trialFailed && string(o.fleet) != w.template {
				w.fail("seed %d: place %d is of %s and not of %s", seed, place, o.fleet, w.template)
			}
		}
		if len(w.at) != int(*w.spec.Replicas) {
			w.fail("seed %d: there are %d Servers for %d places", seed, len(w.at), *w.spec.Replicas)
		}
	}
}

func TestATrialEndsWithItsDeadlineOrWithTheSleep(t *testing.T) {
	since := t0.Format(time.RFC3339)
	good := []*fleet{holding("a", "0")}
	for name, c := range map[string]struct {
		replicas int32
		after    time.Duration
		current  *fleet
		old      []*fleet
		want     string
	}{
		"on trial":                           {replicas: 1, after: time.Minute, current: &fleet{desired: 1, trial: since}, old: good, want: since},
		"over":                               {replicas: 1, after: 10 * time.Minute, current: &fleet{desired: 1, trial: since}, old: good, want: trialFailed},
		"the game sleeps while it boots":     {replicas: 0, after: 59 * time.Second, current: &fleet{desired: 1, trial: since}, old: good, want: ""},
		"the game sleeps":                    {replicas: 0, after: time.Minute, current: &fleet{desired: 1, trial: since}, old: good, want: trialFailed},
		"it has had a Ready Server":          {replicas: 1, after: time.Hour, current: &fleet{trial: since, everReady: true}, old: good, want: ""},
		"there is none to give it back to":   {replicas: 1, after: time.Hour, current: &fleet{trial: since}, want: ""},
		"it failed, and goes on having done": {replicas: 1, after: 0, current: &fleet{trial: trialFailed}, old: good, want: trialFailed},
		"it has lost its place meanwhile":    {replicas: 1, after: time.Hour, current: &fleet{trial: since}, old: good, want: ""},
		"it was never tried":                 {replicas: 0, after: time.Hour, current: &fleet{}, old: good, want: ""},
	} {
		spec := &v1alpha1.GameTypeSpec{Replicas: &c.replicas, Update: v1alpha1.UpdateSpec{ProgressDeadline: &metav1.Duration{Duration: 10 * time.Minute}}}
		if got, _ := trialOf(t0.Add(c.after), spec, c.current, c.old); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
