package gametype

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/pending"
)

// state is what the controller remembers of one GameType between passes. All of it
// can be lost.
type state struct {
	// number is the highest that a revision has had.
	number int64
	// status writes the GameType's.
	status kit.PlayersStatus
	// statusPutOff says that the last pass left the status to the next: what it changed
	// goes on in the Fleets' controller at once, and a player may wait for that.
	statusPutOff bool
	// lag is that of a cache with a Fleet for a later GameType than it shows.
	lag    pending.Lag
	writes pending.Writes[written]
}

// stateOf is only used by the one worker that has the GameType.
func (r *Reconciler) stateOf(gt *v1alpha1.GameType) *state {
	m := r.states.Of(client.ObjectKeyFromObject(gt), gt.UID)
	if u := gt.Status.UpdateRevision; u != nil {
		m.number = max(m.number, u.Number)
	}
	return m
}
