package planner

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/text"
)

// buffer wishes as many Servers as are in use and a number of spare ones, or as many as there is
// to be room on for those who play and a number of others. A percentage is of all that it
// wishes. Everything is rounded up.
//
// delay has the wishes within scaleDownDelay.
func buffer(now time.Time, p *v1alpha1.BufferPolicy, delay window, o Observed) (wish, window) {
	n, why, failure := buffered(p, o)
	if failure != nil {
		return *failure, delay // what was wished goes on to count
	}
	w := wants(n, reasons.BufferKept, why)
	if ceiling := or(p.MaxReplicas, maxReplicas); *w.replicas > ceiling {
		w = wants(ceiling, reasons.BufferCeiling, why+" That is more than its maxReplicas.")
	}
	if floor := or(p.MinReplicas, 0); *w.replicas < floor {
		w = wants(floor, reasons.BufferFloor, why+" That is fewer than its minReplicas.")
	}

	length := durationOr(p.ScaleDownDelay, 0)
	if length == 0 {
		return w, nil
	}
	delay = delay.add(now, length, *w.replicas, higher)
	if most := delay[0].wish; most > *w.replicas {
		left := delay.left(now, length)
		w = wants(most, reasons.BufferDelayed, fmt.Sprintf("%s %d were wished for within the last %s.", why, most, length))
		w.again = now.Add(left)
	}
	return w, delay
}

// begunDelay is the delay of a buffer of which nobody knows what it wished, since the operator was
// restarted for instance: what there is counts as wished, as far as the buffer may wish it.
func begunDelay(now time.Time, p *v1alpha1.BufferPolicy, o Observed) window {
	if durationOr(p.ScaleDownDelay, 0) == 0 {
		return nil
	}
	return window{{now, min(o.Desired, or(p.MaxReplicas, maxReplicas))}}
}

// buffered is what the buffer asks for, and a sentence about it.
func buffered(p *v1alpha1.BufferPolicy, o Observed) (n int32, why string, failure *wish) {
	failed := func(w wish) (int32, string, *wish) { return 0, "", &w }
	switch {
	case p.Servers != nil:
		spare, percent, ok := number(p.Servers)
		if !ok {
			return failed(fails(reasons.NotObserved, "servers is neither a number nor a percentage."))
		}
		used := max(0, int64(o.Ready)-int64(o.Empty))
		return bounded(withSpare(used, spare, percent)), fmt.Sprintf("%s in use, and %s spare are to be there.", isOrAre(used), p.Servers), nil
	case p.PlayerSlots != nil:
		slots, percent, ok := number(p.PlayerSlots)
		switch {
		case !ok:
			return failed(fails(reasons.NotObserved, "playerSlots is neither a number nor a percentage."))
		case o.Ready == 0:
			return failed(wants(o.Desired, reasons.ServersNotReady, "It waits until a Server is Ready, to know how many players one has room for."))
		case o.Capacity <= 0:
			return failed(fails(reasons.CapacityUnknown, "The Servers report no capacity; set the template's players.capacity."))
		}
		room := withSpare(max(0, o.Players), slots, percent)
		why := fmt.Sprintf("%d play, there is room for %d on %s, and %s more are to have room.", o.Players, o.Capacity, text.Servers(o.Ready), p.PlayerSlots)
		return bounded(scaled(room, int64(o.Ready), o.Capacity)), why, nil
	}
	return failed(fails(reasons.NotObserved, "It asks for nothing that is known to this version of Dormouse."))
}

// withSpare is the least number of which enough are spare beyond those that are used: so many,
// or so many percent of the number itself, and 1 at least.
func withSpare(used, spare int64, percent bool) int64 {
	if !percent {
		return sum(used, spare)
	}
	return max(1, scaled(used, 100, 100-spare))
}

// number is a number that isn't negative, or a percentage below 100.
func number(value *intstr.IntOrString) (n int64, percent, ok bool) {
	if value.Type == intstr.Int {
		return int64(value.IntVal), false, value.IntVal >= 0
	}
	digits, percent := strings.CutSuffix(value.StrVal, "%")
	n, err := strconv.ParseInt(digits, 10, 32)
	return n, true, percent && err == nil && n >= 0 && n < 100
}

func isOrAre(n int64) string {
	if n == 1 {
		return "1 Server is"
	}
	return fmt.Sprintf("%d Servers are", n)
}
