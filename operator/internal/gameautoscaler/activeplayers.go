package gameautoscaler

import (
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// activePlayers wishes a step more or less than there is, by the load: players, in percent of
// how many could play on the Servers that take players. Players on Servers that drain don't
// count, nor does the room there.
//
// It waits until as many Servers as are asked for are Ready, since those that start will take
// load off the others. To wish fewer all must be, and no update be under way; in an update more
// are there for a while. A step down is smaller where the load would otherwise be too high after
// it.
func activePlayers(now time.Time, spec *v1alpha1.GameAutoscalerSpec, p *v1alpha1.ActivePlayersPolicy, h history, o observed) wish {
	out, in := int64(or(p.ScaleOutAbovePercent, 80)), int64(or(p.ScaleInBelowPercent, 30))
	step := or(p.Step, 1)
	capacity := o.capacity
	if p.MaxPlayersPerServer != nil {
		capacity = int64(*p.MaxPlayersPerServer) * int64(o.ready)
	}
	stays := func(reason, message string) wish { return wants(o.desired, reason, message) }
	switch {
	case p.From == v1alpha1.ActivePlayersFromFirstPlayer && !h.played:
		return stays(reasons.WaitingForPlayers, "Nobody has played since the target woke.")
	case o.ready < o.desired:
		return stays(reasons.ServersNotReady, fmt.Sprintf("It waits until all are Ready: %d of %s are.", o.ready, servers(o.desired)))
	case capacity <= 0:
		return fails(reasons.CapacityUnknown, "The Servers report no capacity; set maxPlayersPerServer, or the template's players.capacity.")
	}

	load := fmt.Sprintf("%d of %d players are on %s", o.players, capacity, servers(o.ready))
	// What the load is above is compared without rounding.
	above := func(percent int64) bool { return scaled(o.players, 100, 1) > scaled(capacity, percent, 1) }
	below := func(percent int64) bool { return scaled(o.players, 100, 1) < scaled(capacity, percent, 1) }
	switch {
	case above(out):
		load += fmt.Sprintf(", more than %d %%.", out)
		if left := upLeft(now, spec, h); left > 0 {
			w := stays(reasons.CoolingDown, load+" It waits for the cooldown.")
			w.again = now.Add(left)
			return w
		}
		return wants(bounded(int64(o.desired)+int64(step)), reasons.LoadHigh, load)
	case !below(in):
		return stays(reasons.LoadNormal, load+".")
	}

	load += fmt.Sprintf(", less than %d %%.", in)
	// With so many Servers the load is out at most.
	enough := bounded(scaled(scaled(o.players, 100, 1), int64(o.ready), scaled(capacity, out, 1)))
	fewer := max(o.desired-step, enough, 1)
	switch {
	case fewer >= o.desired:
		return stays(reasons.LoadNormal, load+" Fewer Servers would have too much.")
	case o.updating:
		return stays(reasons.Updating, load+" It waits for the end of the update.")
	case o.current != o.desired:
		return stays(reasons.ServersNotReady, fmt.Sprintf("%s It waits until all are Ready: %d of %s are.", load, o.ready, servers(o.current)))
	}
	if left := downLeft(now, spec, h); left > 0 {
		w := stays(reasons.CoolingDown, load+" It waits for the cooldown.")
		w.again = now.Add(left)
		return w
	}
	return wants(fewer, reasons.LoadLow, load)
}
