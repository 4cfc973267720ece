package route

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// A game may say nothing of itself, and answer no probe. Its pod is ready once kubelet has probed
// its sidecar, whether the game listens or not. Held clients needn't wait for that: a connection
// shows when the game listens. Where somebody counts the players the sidecar must be there first,
// or the first ones would not be counted.

// silent is a Server whose game says nothing of itself.
type silent struct {
	// reported is the UID of the pod whose sidecar has reported that.
	reported types.UID
	// uncounted is set where nobody counts the game's players, so that the sidecar isn't waited
	// for. Spoken is the UID of the pod whose game said something all the same.
	uncounted bool
	spoken    types.UID
}

// silentOf is a Server as it was stripped.
func silentOf(s *v1alpha1.Server) silent {
	is := silent{uncounted: s.Spec.Players == nil}
	switch game := s.Status.Game; {
	case game == nil:
	case game.State == v1alpha1.GameReady && !game.Reported:
		is.reported = types.UID(game.PodUID)
	default:
		is.spoken = types.UID(game.PodUID)
	}
	if !is.uncounted && is.reported == "" {
		return silent{} // nothing that counts
	}
	return is
}

// listensUnasked reports whether a pod's game may listen though nobody says so.
func (is silent) listensUnasked(pod types.UID) bool {
	return pod != "" && (pod == is.reported || is.uncounted && pod != is.spoken)
}

// setSilent takes in what a Server's sidecar doesn't know of its game. It is called with the
// table's lock.
func (t *Table) setSilent(name types.NamespacedName, s *v1alpha1.Server, is silent) {
	if t.silent[name] == is {
		return
	}
	if is == (silent{}) {
		delete(t.silent, name)
	} else {
		t.silent[name] = is
	}
	for _, of := range targetsOf(s) {
		t.show(slices.Clone(t.targets[of]))
	}
}
