package planner

import (
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/text"
)

// activePlayers wishes a step more or less than there is, by the load: players, in percent of
// how many could play on the Servers that take players. Players on Servers that drain don't
// count, nor does the room there.
//
// Servers that are asked for and not Ready yet will take load off the others: to wish more, the load must be too high
// also with as much room on each of them as on those that are. One that never starts doesn't hold up more of them so.
// To wish fewer all must be Ready, and no update be under way; in an update more are there for a while. A step down is
// smaller where the load would otherwise be too high after it.
func activePlayers(now time.Time, spec *v1alpha1.GameAutoscalerSpec, p *v1alpha1.ActivePlayersPolicy, h History, o Observed) wish {
	out, in := int64(or(p.ScaleOutAbovePercent, 80)), int64(or(p.ScaleInBelowPercent, 30))
	step := or(p.Step, 1)
	capacity := o.Capacity
	if p.MaxPlayersPerServer != nil {
		capacity = int64(*p.MaxPlayersPerServer) * int64(o.Ready)
	}
	stays := func(reason, message string) wish { return wants(o.Desired, reason, message) }
	switch {
	case p.From == v1alpha1.ActivePlayersFromFirstPlayer && !h.played:
		return stays(reasons.WaitingForPlayers, "Nobody has played since the target woke.")
	case o.Ready == 0 && o.Desired > 0:
		return stays(reasons.ServersNotReady, fmt.Sprintf("It waits until one is Ready of %s.", text.Servers(o.Desired)))
	case capacity <= 0:
		return fails(reasons.CapacityUnknown, "The Servers report no capacity; set maxPlayersPerServer, or the template's players.capacity.")
	}

	load := fmt.Sprintf("%d of %d players are on %s", o.Players, capacity, text.Servers(o.Ready))
	room := capacity
	if o.Ready < o.Desired {
		room = scaled(capacity, int64(o.Desired), int64(o.Ready))
	}
	// What the load is above is compared without rounding.
	above := func(percent int64) bool { return scaled(o.Players, 100, 1) > scaled(room, percent, 1) }
	below := func(percent int64) bool { return scaled(o.Players, 100, 1) < scaled(capacity, percent, 1) }
	switch {
	case o.Ready < o.Desired && !above(out):
		return stays(reasons.ServersNotReady, fmt.Sprintf("%s. It waits until all are Ready: %d of %s are.", load, o.Ready, text.Servers(o.Desired)))
	case above(out):
		load += fmt.Sprintf(", more than %d %%.", out)
		if left := upLeft(now, spec, h); left > 0 {
			w := stays(reasons.CoolingDown, load+" It waits for the cooldown.")
			w.again = now.Add(left)
			return w
		}
		return wants(bounded(int64(o.Desired)+int64(step)), reasons.LoadHigh, load)
	case !below(in):
		return stays(reasons.LoadNormal, load+".")
	}

	load += fmt.Sprintf(", less than %d %%.", in)
	// With so many Servers the load is out at most.
	enough := bounded(scaled(scaled(o.Players, 100, 1), int64(o.Ready), scaled(capacity, out, 1)))
	fewer := max(o.Desired-step, enough, 1)
	switch {
	case fewer >= o.Desired:
		return stays(reasons.LoadNormal, load+" Fewer Servers would have too much.")
	case o.Updating:
		return stays(reasons.Updating, load+" It waits for the end of the update.")
	case o.Current != o.Desired:
		return stays(reasons.ServersNotReady, fmt.Sprintf("%s It waits until all are Ready: %d of %s are.", load, o.Ready, text.Servers(o.Current)))
	}
	if left := downLeft(now, spec, h); left > 0 {
		w := stays(reasons.CoolingDown, load+" It waits for the cooldown.")
		w.again = now.Add(left)
		return w
	}
	return wants(fewer, reasons.LoadLow, load)
}
