package gametype

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	fleets "dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/places"
)

// trialFailed is the value of TrialAnnotation on a Fleet that gave its places back.
const trialFailed = "failed"

// bootTime is how long a game may take to boot.
const bootTime = time.Minute

// occupant is the Server that has a place.
type occupant struct {
	fleet types.UID
	// up is set where it takes players.
	up bool
	// going is set where it drains or is being deleted, and allocated where only its game may
	// end it.
	going, allocated bool
	players          int32
}

// occupants are those of a GameType's places. Servers are found by the Fleets that own them.
type occupants map[int32]occupant

// has reports whether any of them is of a Fleet.
func (o occupants) has(f *fleet) bool {
	for _, one := range o {
		if one.fleet == f.uid && !one.going {
			return true
		}
	}
	return false
}

// observeOccupants reads from the cache who has which place.
func observeOccupants(ctx context.Context, cached client.Reader, gt *v1alpha1.GameType, list []fleet) (occupants, error) {
	all := occupants{}
	for i := range list {
		var servers v1alpha1.ServerList
		err := cached.List(ctx, &servers, client.InNamespace(gt.Namespace), client.MatchingFields{fleets.IndexOwner: string(list[i].uid)}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, fmt.Errorf("list the Servers of Fleet %s: %w", list[i].name, err)
		}
		for j := range servers.Items {
			s := &servers.Items[j]
			if place := places.Of(s); place != places.None {
				all[place] = occupantOf(s, list[i].uid)
			}
		}
	}
	return all, nil
}

func occupantOf(s *v1alpha1.Server, of types.UID) occupant {
	o := occupant{
		fleet:     of,
		up:        s.Status.State.TakesPlayers(),
		going:     s.Spec.Drain || !s.DeletionTimestamp.IsZero(),
		allocated: s.Status.State == v1alpha1.ServerAllocated || s.Status.State == v1alpha1.ServerReserved,
	}
	if p := s.Status.Players; p != nil {
		o.players = p.Current
	}
	return o
}

// placeBounds are the bounds of an update of Servers with places. The new Server of a place
// starts when the old one has left its disk, so there is no surge.
func placeBounds(spec *v1alpha1.GameTypeSpec, n int32) bounds {
	fewer := max(1, scaled(spec.Update.MaxUnavailable, "0", n, false))
	if spec.Update.Strategy == v1alpha1.UpdateRecreate {
		fewer = n
	}
	return bounds{replicas: n, most: n, least: max(0, n-fewer)}
}

// trialOf is the state of the current revision's trial. It begins with its first Server, if
// there is an earlier revision that has had a Ready Server, and ends with its own first Ready
// one. It fails by update.progressDeadline, or with the game's sleep, unless that comes before a
// game may have booted.
func trialOf(now time.Time, spec *v1alpha1.GameTypeSpec, current *fleet, old []*fleet) (trial string, left time.Duration) {
	switch {
	case current.everReady || lastEverReady(old) < 0:
		return "", 0
	case current.trial == "" || current.trial == trialFailed:
		return current.trial, 0
	case current.desired == 0:
		return "", 0 // it lost its place before it could get ready
	}
	since, err := time.Parse(time.RFC3339, current.trial)
	if err == nil && Replicas(spec) == 0 {
		if now.Sub(since) < bootTime {
			return "", 0
		}
		return trialFailed, 0
	}
	deadline := spec.Update.ProgressDeadline
	if err != nil || deadline == nil || deadline.Duration <= 0 {
		return current.trial, 0
	}
	if left = since.Add(deadline.Duration).Sub(now); left <= 0 {
		return trialFailed, 0
	}
	return current.trial, left
}

// lastEverReady is the index of the newest Fleet that has ever had a Ready Server; -1 where none
// has.
func lastEverReady(old []*fleet) int {
	for i, f := range slices.Backward(old) {
		if f.everReady {
			return i
		}
	}
	return -1
}

// assign decides which places the current Fleet and each old one are to have.
//
//  1. A place stays with the Fleet that has it. Places beyond the number that is asked for,
//     which are the highest, have none.
//
//  2. A place without a Fleet gets one when no Server has its name any more: the current one,
//     or, for those beyond what a revision on trial may have, the last one that has ever had a
//     Ready Server.
//
//  3. Old Fleets lose places to the current one: first those whose Server isn't up, then, as
//     long as enough others are up, those with the fewest players, the highest first.
//
//  4. A revision that never had a Ready Server loses its places where its trial has failed, or
//     another revision has come.
func assign(b bounds, trial string, current *fleet, old []*fleet, at occupants) (want []int32, left [][]int32) {
	left = make([][]int32, len(old))
	fallback := lastEverReady(old)
	most := int(b.replicas)
	switch {
	case current.everReady || fallback < 0:
	case trial == trialFailed:
		most = 0
	default:
		most = max(1, int(b.replicas-b.least))
	}

	// Who has which place, and which are up?
	const currents = -1
	holders := map[int32]int{}
	for i, f := range slices.Backward(old) {
		for _, place := range f.heldPlaces() {
			if f.everReady || fallback < 0 || at[place].up {
				holders[place] = i
			}
		}
	}
	for _, place := range current.heldPlaces() {
		if most > 0 || at[place].up {
			holders[place] = currents
		}
	}
	uid := func(holder int) types.UID {
		if holder == currents {
			return current.uid
		}
		return old[holder].uid
	}
	// Servers from before there were places are Ready and have none: they stand for places of theirs.
	unplaced := make([]int32, len(old))
	for i, f := range old {
		unplaced[i] = f.ready
		for _, o := range at {
			if o.fleet == f.uid && o.up && !o.going {
				unplaced[i]--
			}
		}
	}
	stoodFor := map[int32]bool{}
	isUp := func(place int32) bool { return stoodFor[place] || at[place].up && !at[place].going }
	spare, moving := int(b.replicas-b.least), 0
	var free, movable []int32
	for place := range b.replicas {
		holder, held := holders[place]
		o, there := at[place]
		if held && !there && holder != currents && unplaced[holder] > 0 {
			stoodFor[place] = true
			unplaced[holder]--
		}
		up := held && isUp(place) && (!there || o.fleet == uid(holder))
		if !up {
			spare--
		}
		switch {
		case held && holder == currents:
			want = append(want, place)
		case held:
			left[holder] = append(left[holder], place)
			if !o.allocated && (holder != fallback || most > 0) {
				movable = append(movable, place)
			}
		case !there || o.fleet == current.uid && most > 0:
			free = append(free, place)
		default:
			moving++
		}
	}

	// Who gets the free ones?
	for _, place := range free {
		switch {
		case len(want) < most:
			want = append(want, place)
		case fallback >= 0:
			left[fallback] = append(left[fallback], place)
		}
	}

	// Which change over?
	slices.SortFunc(movable, func(a, b int32) int {
		switch up := isUp(a); {
		case up == isUp(b):
			return cmp.Or(cmp.Compare(at[a].players, at[b].players), cmp.Compare(b, a))
		case up:
			return 1
		default:
			return -1
		}
	})
	for _, place := range movable {
		if len(want)+moving >= most {
			break
		}
		if isUp(place) {
			if spare <= 0 {
				break
			}
			spare--
		}
		from := holders[place]
		left[from] = slices.DeleteFunc(left[from], func(p int32) bool { return p == place })
		moving++
		if _, there := at[place]; !there {
			want = append(want, place)
			moving--
		}
	}
	slices.Sort(want)
	for _, l := range left {
		slices.Sort(l)
	}
	return want, left
}

// heldPlaces are the places that a Fleet's Servers are to have.
func (f *fleet) heldPlaces() []int32 {
	list, err := places.Wanted(&v1alpha1.FleetSpec{Replicas: &f.desired, Places: f.places})
	if err != nil {
		return nil // the API server refuses what can't be read
	}
	return list
}

// whyPlaces explains a step of an update by places, or what the next one waits for.
func whyPlaces(b bounds, trial string, current *fleet, old []*fleet, want []int32, at occupants) string {
	players := int32(0)
	waiting := 0
	for _, o := range at {
		if o.going && o.fleet != current.uid {
			waiting++
			players += o.players
		}
	}
	switch {
	case b.replicas == 0 && current.desired > 0:
		return "No Servers are asked for."
	case trial == trialFailed:
		return fmt.Sprintf("It never got a Server ready and gave its places back to revision %d; change the template, or change it back.", old[lastEverReady(old)].number)
	case waiting > 0 && players > 0:
		return "Servers have disks, so a place changes over when its players have left, and maxSurge doesn't count."
	case len(want) < int(b.replicas):
		return "Servers have disks, so one place changes over after the other, and maxSurge doesn't count."
	default:
		return ""
	}
}
