package gametype

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/pending"
)

var t0 = time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)

// gameServer is a Server as it is.
type gameServer struct {
	ready, allocated, draining bool
	// spared is whether it was Allocated when its Fleet last counted and had too many.
	spared  bool
	players int
}

// realFleet is a Fleet as the API server has it, with its Servers.
type realFleet struct {
	fleet
	template string
	servers  []*gameServer
	// seen is the generation that its status is of.
	seen int64
}

// world is one GameType with its Fleets, whose own controller is imitated.
type world struct {
	t          *testing.T
	now        time.Time
	spec       v1alpha1.GameTypeSpec
	replicas   int32
	template   string
	lastNumber int64
	version    int
	// real are the Fleets by template, and cached what the controller sees.
	real   map[string]*realFleet
	cached map[types.UID]realFleet
	writes pending.Writes[written]
	// stuck is whether a Fleet can't do what it wants to just now.
	stuck func() bool
	// lost are the Servers that were ended with players on them.
	lost int
	log  []string
}

func newWorld(t *testing.T, replicas int32, update v1alpha1.UpdateSpec) *world {
	w := &world{t: t, now: t0, replicas: replicas, template: "a", real: map[string]*realFleet{}, cached: map[types.UID]realFleet{}, writes: pending.Writes[written]{}}
	w.spec = v1alpha1.GameTypeSpec{Replicas: &w.replicas, Update: update, RevisionHistoryLimit: new(int32(5))}
	return w
}

func step(surge, unavailable string) v1alpha1.UpdateSpec {
	return v1alpha1.UpdateSpec{Strategy: v1alpha1.UpdateGradual, MaxSurge: new(intstr.Parse(surge)), MaxUnavailable: new(intstr.Parse(unavailable))}
}

func retiring(u v1alpha1.UpdateSpec, after time.Duration) v1alpha1.UpdateSpec {
	u.RetireAfter = &metav1.Duration{Duration: after}
	return u
}

func (w *world) fleets() []*realFleet {
	return slices.SortedFunc(maps.Values(w.real), func(a, b *realFleet) int { return strings.Compare(a.name, b.name) })
}

func (w *world) touch(f *realFleet) {
	w.version++
	f.resourceVersion = fmt.Sprint(w.version)
}

// show lets the controller see a Fleet as it is.
func (w *world) show(template string, uid types.UID) {
	if f, ok := w.real[template]; ok && f.uid == uid {
		w.cached[uid] = *f
	} else {
		delete(w.cached, uid)
	}
}

func (w *world) showAll() {
	w.cached = map[types.UID]realFleet{}
	for _, f := range w.real {
		w.cached[f.uid] = *f
	}
}

// pass is one of the GameType's controller, and says what it did.
func (w *world) pass() plan {
	var fleets []fleet
	for _, uid := range slices.Sorted(maps.Keys(w.cached)) {
		c := w.cached[uid]
		f := c.fleet
		f.current, f.observed = c.template == w.template, c.seen == f.generation
		fleets = append(fleets, f)
	}
	fleets, _ = overlay(func(t v1alpha1.ServerTemplate, _ sentTemplate) bool { return t.Spec.GameContainer == w.template }).Over(w.writes, w.now, fleets)
	p := makePlan(w.now, &w.spec, fleets, nil, w.lastNumber)
	w.lastNumber = max(w.lastNumber, p.number)
	if p.create {
		w.create(p)
	}
	for _, c := range p.change {
		w.write(c.fleet, pending.Change, func(f *realFleet) {
			if f.desired != c.replicas {
				f.generation++
			}
			f.desired, f.number, f.retiringSince = c.replicas, c.number, c.retiringSince
		})
	}
	for _, f := range p.force {
		w.force(f)
	}
	for _, f := range p.remove {
		w.write(f, pending.Delete, func(f *realFleet) { delete(w.real, f.template); w.lost += occupied(f) })
	}
	return p
}

// force ends all Servers of a Fleet whose time is over.
func (w *world) force(seen *fleet) {
	f, ok := w.real[w.templateOf(seen.uid)]
	if !ok || f.uid != seen.uid {
		return
	}
	after := w.spec.Update.RetireAfter
	if f.template == w.template || f.desired > 0 || after == nil || f.retiringSince.IsZero() || w.now.Sub(f.retiringSince) < after.Duration {
		w.lost += occupied(f)
	}
	f.servers = nil
}

func (w *world) templateOf(uid types.UID) string { return strings.Split(string(uid), " ")[0] }

func (w *world) create(p plan) {
	if _, taken := w.real[w.template]; taken {
		return // The API server refuses a second one of its name.
	}
	f := &realFleet{template: w.template, fleet: fleet{name: w.template, generation: 1, number: p.number, desired: p.first}}
	w.touch(f)
	f.uid = types.UID(w.template + " " + f.resourceVersion)
	w.real[w.template] = f
	remember(w.writes, w.now, pending.Create, f.fleet, v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{GameContainer: f.template}})
}

// write changes a Fleet unless it isn't any more as it was seen.
func (w *world) write(seen *fleet, kind pending.Kind, change func(*realFleet)) {
	f, ok := w.real[w.templateOf(seen.uid)]
	if !ok || f.resourceVersion != seen.resourceVersion {
		return // The API server refuses it.
	}
	change(f)
	w.touch(f)
	remember(w.writes, w.now, kind, f.fleet, v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{GameContainer: f.template}})
}

// act is a pass of a Fleet's own controller: as there, the status is of before
// what it does. It says whether it did anything.
func (w *world) act(f *realFleet) bool {
	before := f.fleet
	f.active, f.ready, f.allocated, f.draining, f.players = 0, 0, 0, 0, 0
	var active, drained []*gameServer
	for _, s := range f.servers {
		f.players += int32(s.players)
		if s.draining {
			f.draining++
			drained = append(drained, s)
			continue
		}
		active = append(active, s)
		f.active++
		if s.ready {
			f.ready++
		}
		if s.allocated {
			f.allocated++
		}
	}
	f.everReady = f.everReady || f.ready > 0
	worked := f.seen != f.generation || before != f.fleet
	f.seen = f.generation
	if worked {
		w.touch(f)
	}
	for _, s := range active {
		s.spared = s.spared || s.allocated && len(active) > int(f.desired)
	}
	if w.stuck != nil && w.stuck() {
		return worked
	}
	slices.SortStableFunc(drained, func(a, b *gameServer) int { return cmp.Compare(b.players, a.players) })
	for len(active) < int(f.desired) && len(drained) > 0 {
		drained[0].draining = false
		active, drained = append(active, drained[0]), drained[1:]
		worked = true
	}
	for range int(f.desired) - len(active) {
		f.servers = append(f.servers, &gameServer{})
		worked = true
	}
	going := slices.DeleteFunc(slices.Clone(active), func(s *gameServer) bool { return s.allocated })
	slices.SortStableFunc(going, func(a, b *gameServer) int {
		return cmp.Or(cmp.Compare(ordinal(a.ready), ordinal(b.ready)), cmp.Compare(a.players, b.players))
	})
	for _, s := range going[:max(0, min(len(going), len(active)-int(f.desired)))] {
		s.draining, worked = true, true
	}
	n := len(f.servers)
	f.servers = slices.DeleteFunc(f.servers, func(s *gameServer) bool { return s.draining && s.players == 0 && !s.allocated })
	return worked || n != len(f.servers)
}

func ordinal(b bool) int {
	if b {
		return 1
	}
	return 0
}

func occupied(f *realFleet) int {
	n := 0
	for _, s := range f.servers {
		if s.players > 0 || s.allocated {
			n++
		}
	}
	return n
}

// ready counts the Servers that are Ready and stay; counted those that take
// players or will. Allocated ones that should go don't count.
func (w *world) ready() (ready, counted int) {
	for _, f := range w.real {
		active, allocated := 0, 0
		for _, s := range f.servers {
			if s.draining {
				continue
			}
			active++
			if s.allocated {
				allocated++
			}
			if s.ready {
				ready++
			}
		}
		counted += min(active, max(int(f.desired), active-allocated))
	}
	return ready, counted
}

func (w *world) bounds() (most, least int) {
	b := boundsOf(&w.spec)
	return int(b.most), int(b.least)
}
