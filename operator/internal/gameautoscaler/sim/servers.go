package sim

import (
	"cmp"
	"slices"
	"time"
)

// server is one Server, from its creation to its deletion.
type server struct {
	number   int // in the order in which they were made
	made     time.Duration
	ready    bool
	draining bool
	deleted  bool
	// outdated is set where it is of the version before.
	outdated bool
	players  int
}

func (s *server) takesPlayers() bool { return s.ready && !s.draining }
func (s *server) hasRoom() bool      { return s.takesPlayers() && s.players < room }

// scale is what the Fleet does: it has as many Servers that don't drain as are asked for.
func (w *world) scale() {
	var active, drained []*server
	outdated := 0
	for _, s := range w.servers {
		switch {
		case !s.draining:
			active = append(active, s)
			if s.outdated {
				outdated++
			}
		case !s.outdated:
			drained = append(drained, s)
		}
	}
	want := int(w.desired)
	if outdated > 0 { // those of the new version come on top, a quarter at a time
		want = min(want+(want+3)/4, want+outdated)
	}
	if excess := len(active) - want; excess > 0 {
		slices.SortFunc(active, goesFirst)
		for _, s := range active[:excess] {
			w.remove(s)
		}
		return
	}
	slices.SortFunc(drained, func(a, b *server) int { return cmp.Compare(b.players, a.players) })
	for missing := want - len(active); missing > 0; missing-- {
		if len(drained) > 0 {
			drained[0].draining, drained = false, drained[1:]
			continue
		}
		w.create()
	}
	w.admitWaiting() // one that was taken back may have room
}

// goesFirst orders Servers by which of them a Fleet can do without: those of the version before,
// those that start, and those with the fewest players; the newest first.
func goesFirst(a, b *server) int {
	rank := func(s *server) int {
		switch {
		case s.outdated:
			return 0
		case !s.ready:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.players, b.players), cmp.Compare(b.number, a.number))
}

// replace goes on with an update: for each Server more that is Ready than are asked for, one of
// the version before goes.
func (w *world) replace() {
	ready := 0
	var outdated []*server
	for _, s := range w.servers {
		switch {
		case s.draining:
		case s.outdated:
			outdated = append(outdated, s)
			fallthrough
		case s.ready:
			ready++
		}
	}
	slices.SortFunc(outdated, goesFirst)
	for _, s := range outdated {
		if s.ready && ready <= int(w.desired) {
			break
		}
		w.remove(s)
		ready--
	}
	w.scale()
}

func (w *world) create() *server {
	w.made++
	s := &server{number: w.made, made: w.now}
	w.servers = append(w.servers, s)
	boot := bootLeast + time.Duration(w.chance.Int64N(int64(bootMost-bootLeast)))
	w.events.add(event{at: w.now + boot, kind: boots, server: s})
	w.outcome.servers(w.now, len(w.servers))
	return s
}

// remove deletes a Server on which nobody plays, and drains any other.
func (w *world) remove(s *server) {
	if s.players > 0 {
		s.draining = true
		return
	}
	s.deleted = true
	w.servers = slices.DeleteFunc(w.servers, func(other *server) bool { return other == s })
	w.outcome.ran(s.made, w.now)
	w.outcome.servers(w.now, len(w.servers))
}

// updating reports whether Servers of several versions take players.
func (w *world) updating() bool {
	before, after := false, false
	for _, s := range w.servers {
		if !s.draining {
			before, after = before || s.outdated, after || !s.outdated
		}
	}
	return before && after
}
