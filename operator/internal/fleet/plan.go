package fleet

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/requeue"
)

// maxWrites bounds how many Servers one pass creates, and how many it drains, takes back and
// deletes. The next pass follows at once.
const maxWrites = 100

// nextPass is when the next pass comes if this one left something undone.
const nextPass = time.Millisecond

// windowRetry is when a Fleet looks again for room for its Servers that start, or go.
const windowRetry = 100 * time.Millisecond

// Bounds of how many of a Fleet's Servers go at once: with thousands each would wait for all others.
const (
	maxGoing = 200
	// goingFor is for how long a deleted Server counts as going. One that is still there has players
	// or a node that doesn't answer, which keeps others from nothing.
	goingFor = 15 * time.Second
)

// plan is what a pass is to do.
type plan struct {
	// takeBack are drained Servers that take players again.
	takeBack []*server
	// create is how many Servers are made, and places are theirs, where they have some.
	create int
	places []int32
	// taken is the name of somebody else's Server that a place should have; empty: none.
	taken string
	// problem is what is wrong with spec.places; empty: nothing.
	problem string
	// drain and remove are Servers that go: once they are empty, or at once.
	drain, remove []*server
	// broken are those of drain and remove that go because they are Unhealthy, and ended are
	// those whose game asked for its end.
	broken, ended []*server
	// held is how many replacements wait because those before them failed.
	held int
	// refused is set where Servers are missing because the API server has refused them.
	refused bool
	// spared is how many Servers beyond the desired number stay because they are Allocated.
	spared       int
	requeueAfter requeue.After
}

// makePlan decides about a Fleet's Servers.
//
// Active are those that neither drain nor are being deleted, aren't Unhealthy or
// lost with their node, and whose game hasn't asked for its end.
//
//  1. Drained Servers that may be deleted are; so are those whose game asked for
//     its end. Unhealthy ones are deleted or, while somebody plays, drained.
//
//  2. With too few active Servers, those that the Fleet drained are taken back,
//     most players first, and the rest is created. Replacements of Servers that
//     failed wait for their time.
//
//  3. With too many, those that were never ready go first, then those that may be
//     deleted, then those with the fewest players; scaleDown.order decides between
//     equals. Those that may be deleted are; others are drained, or deleted under
//     the guard if scaleDown.policy says so.
//
//  4. Servers whose node is lost are replaced, and left alone because they may come
//     back: no more of them are kept than there should be Servers.
//
//  5. With updateStrategy Rolling, active Servers of an earlier template make room
//     for those of the current one, see roll.
//
// An Allocated Server is never chosen.
func makePlan(now time.Time, spec *v1alpha1.FleetSpec, servers []server, b backoff) plan {
	var p plan
	active, lost, drained := p.sort(servers)
	// Which are of an earlier template, and how many are missing?
	desired := int(ptr.Deref(spec.Replicas, 1))
	missing := desired - len(active)
	if spec.UpdateStrategy == v1alpha1.FleetUpdateRolling {
		drained = slices.DeleteFunc(drained, func(s *server) bool { return s.outdated })
		active, missing = p.roll(spec, active, desired)
	}
	if missing > 0 {
		// Too few: take back, then create, as far as failures and refusals let that be.
		slices.SortFunc(drained, func(a, b *server) int {
			return cmp.Or(cmp.Compare(b.players, a.players), byAge(a, b))
		})
		p.takeBack = drained[:min(missing, len(drained))]
		missing -= len(p.takeBack)
		if now.Before(b.notBefore) {
			p.held = min(missing, b.debt)
		}
		if p.create = missing - p.held; p.held > 0 {
			p.requeueAfter.AtMost(b.notBefore.Sub(now))
		}
		if p.create > 0 && now.Before(b.refusedUntil) {
			p.create, p.refused = 0, true
			p.requeueAfter.AtMost(b.refusedUntil.Sub(now))
		}
	} else {
		p.spared = p.shrink(spec, active, -missing)
	}
	if len(lost) > desired {
		p.shrink(spec, lost, len(lost)-desired)
	}
	p.bound()
	return p
}

// sort finds which Servers count, and has go what goes whatever the number.
func (p *plan) sort(servers []server) (active, lost, drained []*server) {
	for i := range servers {
		s := &servers[i]
		switch {
		case s.deleting:
		case s.shutdown:
			p.ended = append(p.ended, s)
			p.remove = append(p.remove, s)
		case s.draining && s.allowed && !s.allocated:
			p.remove = append(p.remove, s)
		case s.draining:
			if s.ours && !s.unhealthy && !s.lost {
				drained = append(drained, s)
			}
		case s.unhealthy && s.allocated:
		case s.unhealthy:
			p.broken = append(p.broken, s)
			if s.allowed {
				p.remove = append(p.remove, s)
			} else {
				p.drain = append(p.drain, s)
			}
		case s.lost:
			lost = append(lost, s)
		default:
			active = append(active, s)
		}
	}
	return active, lost, drained
}

// surge is how many Servers beyond the desired number there may be while those of an earlier
// template are replaced: a quarter, rounded up.
func surge(desired int) int { return (desired + 3) / 4 }

// roll drains or deletes outdated active Servers. It returns the others, and how many of them
// are missing; below 0 where there are too many.
//
// An outdated Server that isn't up goes where the rest could be enough without it, and one that
// is up where enough others are up. So a template that never gets ready costs no Server that is
// ready, and its own Servers never exceed the surge.
func (p *plan) roll(spec *v1alpha1.FleetSpec, active []*server, desired int) (updated []*server, missing int) {
	var starting, ready []*server
	up := 0
	for _, s := range active {
		if s.up() {
			up++
		}
		switch {
		case !s.outdated || s.allocated:
			updated = append(updated, s)
		case s.up():
			ready = append(ready, s)
		default:
			starting = append(starting, s)
		}
	}
	// Outdated ones that start count as up, which they may soon be.
	spare := max(0, up+len(starting)-desired)
	first := min(spare, len(starting))
	then := min(spare-first, len(ready), max(0, up-desired))
	p.shrink(spec, starting, first)
	p.shrink(spec, ready, then)
	room := desired + surge(desired) - (len(active) - first - then)
	return updated, min(desired-len(updated), room)
}

// shrink drains or deletes so many of the candidates, and returns how many it couldn't because
// they are Allocated.
func (p *plan) shrink(spec *v1alpha1.FleetSpec, candidates []*server, excess int) int {
	if excess <= 0 {
		return 0
	}
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(s *server) bool { return s.allocated })
	slices.SortFunc(candidates, func(a, b *server) int { return goesFirst(spec.ScaleDown.Order, a, b) })
	going := candidates[:min(excess, len(candidates))]
	for _, s := range going {
		if s.deletable() || spec.ScaleDown.Policy == v1alpha1.ScaleDownDelete {
			p.remove = append(p.remove, s)
		} else {
			p.drain = append(p.drain, s)
		}
	}
	return excess - len(going)
}

// goesFirst orders two Servers by which should go first.
func goesFirst(order v1alpha1.ScaleDownOrder, a, b *server) int {
	class := func(s *server) int {
		switch {
		case s.idle():
			return 0
		case s.allowed:
			return 1
		default:
			return 2
		}
	}
	age := byAge(a, b)
	if order != v1alpha1.OldestFirst {
		age = -age
	}
	return cmp.Or(cmp.Compare(class(a), class(b)), cmp.Compare(a.players, b.players), byPlace(b, a), age)
}

// bound leaves the rest of a large change to the next pass.
func (p *plan) bound() {
	more := p.create > maxWrites
	p.create = min(p.create, maxWrites)
	for _, list := range []*[]*server{&p.takeBack, &p.drain, &p.remove} {
		more = more || len(*list) > maxWrites
		*list = (*list)[:min(len(*list), maxWrites)]
	}
	if more {
		p.requeueAfter.AtMost(nextPass)
	}
}

// writes reports whether the plan changes anything.
func (p *plan) writes() bool {
	return p.create > 0 || len(p.takeBack)+len(p.drain)+len(p.remove) > 0
}

// limitRemovals leaves the deletion of Servers to later passes for which there is no room beside
// those that go.
func (p *plan) limitRemovals(going int) {
	if room := max(0, maxGoing-going); len(p.remove) > room {
		p.remove = p.remove[:room]
		p.requeueAfter.AtMost(windowRetry)
	}
}

// limit leaves the creation of Servers beyond some to later passes.
func (p *plan) limit(some int) {
	if p.create <= some {
		return
	}
	p.create = some
	if p.places != nil {
		p.places = p.places[:some]
	}
	p.requeueAfter.AtMost(windowRetry)
}
