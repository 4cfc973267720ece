package gametype

import (
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/pending"
)

// state is the controller's memory of one GameType between passes. All of it can be lost.
type state struct {
	// number is the highest that a revision has had.
	number int64
	// status writes the GameType's status.
	status kit.PlayersStatus
	// statusPutOff is set where the last pass left the status to the next: the Fleets'
	// controller goes on at once with what that pass changed, and a player may wait for it.
	statusPutOff bool
	// lag is that of a cache with a Fleet for a later GameType than the one in it.
	lag pending.Lag
	// ports is that of the private Service behind changed ports.
	ports  pending.Lag
	writes pending.Writes[written]
	// disks are those that outlive the GameType.
	disks disks.Retention
}
