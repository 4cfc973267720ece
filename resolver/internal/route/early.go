package route

import (
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A game's sidecar reports at once that the game takes players. kubelet finds that out by its next
// probe, up to a second later, and held clients needn't wait for it. Once kubelet has, its word
// counts alone: it also tells of a node that is lost.

// earlyFor is for how long a game's word is new. After that kubelet must have found it out, or the
// word is left of a node that doesn't answer any more.
const earlyFor = 30 * time.Second

// early is a Server whose game takes players.
type early struct {
	pod types.UID
	// found is set once kubelet has found it out, too.
	found bool
}

// podThatTakesPlayers is the UID of the pod whose game takes players by its own word, or by what it
// answers to a probe; empty: there is none. Of a game that says nothing the sidecar doesn't know
// whether it listens.
func podThatTakesPlayers(s *v1alpha1.Server) types.UID {
	game := s.Status.Game
	if game == nil || !game.Reported {
		return ""
	}
	switch game.State {
	case v1alpha1.GameReady, v1alpha1.GameAllocated, v1alpha1.GameReserved:
		return types.UID(game.PodUID)
	default:
		return ""
	}
}

// setEarly takes in which of a Server's pods takes players. It is called with the table's lock.
func (t *Table) setEarly(name types.NamespacedName, s *v1alpha1.Server, pod types.UID) {
	was := t.early[name]
	if was.pod == pod {
		return
	}
	is := early{pod: pod}
	if pod == "" {
		delete(t.early, name)
	} else {
		since := s.Status.Game.Since
		is.found = since == nil || t.now().Sub(since.Time) > earlyFor || t.serves(s, pod)
		t.early[name] = is
	}
	if was.pod != "" && !was.found || is.pod != "" && !is.found {
		for _, of := range targetsOf(s) {
			t.show(slices.Clone(t.targets[of]))
		}
	}
}

// serves reports whether kubelet has found out that a Server's pod takes players.
func (t *Table) serves(s *v1alpha1.Server, pod types.UID) bool {
	for _, of := range targetsOf(s) {
		for _, uid := range t.targets[of] {
			r := t.routes[uid]
			for _, slice := range t.slices[types.NamespacedName{Namespace: r.Namespace, Name: r.PrivateService}] {
				for i := range slice.Endpoints {
					e := &slice.Endpoints[i]
					if serving, _ := conditionsOf(e); serving && e.TargetRef != nil && e.TargetRef.UID == pod {
						return true
					}
				}
			}
		}
	}
	return false
}

// findServing takes in what kubelet has found out of a slice's pods.
func (t *Table) findServing(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if serving, _ := conditionsOf(e); !serving || e.TargetRef == nil {
			continue
		}
		name := types.NamespacedName{Namespace: slice.Namespace, Name: e.TargetRef.Name}
		if is := t.early[name]; is.pod == e.TargetRef.UID && !is.found && is.pod != "" {
			is.found = true
			t.early[name] = is
		}
	}
}
