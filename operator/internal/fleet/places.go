package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/text"
)

// standing is where the places of a Fleet with storage stand.
type standing struct {
	// wanted are the places that its Servers are to have, the lowest first.
	wanted []int32
	// taken are the names of Servers that have a wanted place's name and aren't this Fleet's.
	taken map[int32]string
	// problem is what is wrong with spec.places, and unread is set where it can't be read at all.
	problem string
	unread  bool
}

// observePlaces finds where the places of a Fleet with storage stand.
func (r *Reconciler) observePlaces(ctx context.Context, f *v1alpha1.Fleet, servers []server) (*standing, error) {
	wanted, err := places.Wanted(&f.Spec)
	if err != nil {
		return &standing{unread: true, problem: text.Bounded(err.Error()) + ": correct it; until then no Servers are made or replaced."}, nil
	}
	own := make(map[int32]bool, len(servers))
	for i := range servers {
		own[servers[i].place] = true
	}
	s := &standing{wanted: wanted, taken: map[int32]string{}}
	if n := len(wanted); n < int(ptr.Deref(f.Spec.Replicas, 1)) {
		s.problem = fmt.Sprintf("spec.places has %d for %s: name more, or lower replicas.", n, text.Servers(ptr.Deref(f.Spec.Replicas, 1)))
	}
	for _, place := range wanted {
		if own[place] {
			continue
		}
		name := places.Name(f, place)
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: name}, &v1alpha1.Server{}, client.UnsafeDisableDeepCopy)
		if err == nil {
			s.taken[place] = name
		} else if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("look whether place %s is free: %w", name, err)
		}
	}
	return s, nil
}

// planPlaces decides about the Servers of a Fleet whose template has storage.
//
// Each wanted place is to have a Server. A Server has its place until it is gone, whatever its
// state, since its Pod may write to the disk until then. So nothing is made before that in its
// stead: not for a Server that is broken, drains or is being deleted, nor for one whose node is
// lost. Where it isn't known which places are wanted, step 1 is all.
//
//  1. What goes of itself, or is broken, goes as in other Fleets.
//
//  2. Servers of places that aren't wanted go; drained ones of wanted places are taken back.
//
//  3. With updateStrategy Rolling, outdated Servers make room for their successors, as many at
//     a time as surge says.
//
//  4. Wanted places that are free get Servers, the lowest first. Servers from before there were
//     places count, and are the first to go.
func planPlaces(now time.Time, spec *v1alpha1.FleetSpec, at *standing, servers []server, b backoff) plan {
	var p plan
	rolls := spec.UpdateStrategy == v1alpha1.FleetUpdateRolling
	active, lost, drained := p.sort(servers)
	if p.problem = at.problem; at.unread {
		p.bound()
		return p
	}
	wants, has := map[int32]bool{}, map[int32]bool{}
	for _, place := range at.wanted {
		wants[place] = true
	}
	for i := range servers {
		has[servers[i].place] = true
	}

	// Which stay? Those without a place have what the others leave.
	var staying, unwanted, without []*server
	for _, s := range active {
		switch {
		case s.place == places.None:
			without = append(without, s)
		case wants[s.place]:
			staying = append(staying, s)
		default:
			unwanted = append(unwanted, s)
		}
	}
	for _, s := range lost {
		switch {
		case s.place == places.None:
			without = append(without, s)
		case !wants[s.place]:
			unwanted = append(unwanted, s)
		}
	}
	slices.SortFunc(drained, byPlace)
	for _, s := range drained {
		if wants[s.place] && (!rolls || !s.outdated) {
			p.takeBack = append(p.takeBack, s)
		}
	}
	room := len(at.wanted) - len(staying) - len(p.takeBack)
	p.spared = p.shrink(spec, unwanted, len(unwanted)) + p.shrink(spec, without, len(without)-max(0, room))
	room -= len(without)
	if rolls {
		p.rollPlaces(spec, staying, len(at.wanted))
	}

	// Which are made?
	if now.Before(b.notBefore) {
		p.held = min(b.debt, max(0, room))
	}
	for _, place := range at.wanted {
		if !has[place] && at.taken[place] == "" && len(p.places) < room-p.held {
			p.places = append(p.places, place)
		}
	}
	if p.held > 0 {
		p.requeueAfter.AtMost(b.notBefore.Sub(now))
	}
	if len(p.places) > 0 && now.Before(b.refusedUntil) {
		p.places, p.refused = nil, true
		p.requeueAfter.AtMost(b.refusedUntil.Sub(now))
	}
	for _, place := range at.wanted {
		if name := at.taken[place]; name != "" {
			p.taken = cmp.Or(p.taken, name)
			p.requeueAfter.AtMost(takenRetry)
		}
	}
	p.create = len(p.places)
	p.bound()
	p.places = p.places[:p.create]
	return p
}

// takenRetry is when to look again whether a place's name is free.
const takenRetry = 15 * time.Second

// rollPlaces drains or deletes outdated Servers: those that aren't up, and of the others as many
// as may be missing.
func (p *plan) rollPlaces(spec *v1alpha1.FleetSpec, staying []*server, desired int) {
	var idle, ready []*server
	up := 0
	for _, s := range staying {
		switch {
		case s.up() && s.outdated && !s.allocated:
			ready = append(ready, s)
			up++
		case s.up():
			up++
		case s.outdated:
			idle = append(idle, s)
		}
	}
	p.shrink(spec, idle, len(idle))
	p.shrink(spec, ready, up-(desired-surge(desired)))
}

func byPlace(a, b *server) int { return cmp.Compare(a.place, b.place) }
