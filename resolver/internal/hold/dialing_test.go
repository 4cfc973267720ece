package hold

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"dormouse.dev/dormouse/resolver/internal/route"
)

// A backend is dialled more often at first, unless too many are.
func TestTheFirstDialsAreQuick(t *testing.T) {
	t.Parallel()
	now := time.Now()
	few, none := rate.NewLimiter(0, 1), rate.NewLimiter(0, 0)
	for name, c := range map[string]struct {
		network route.Network
		quick   *rate.Limiter
		tries   int
		want    time.Duration
	}{
		"the first":                   {route.TCP, few, 1, quickPeriod},
		"the next of so many":         {route.TCP, none, 2, dialPeriod},
		"where nothing bounds them":   {route.TCP, nil, 1, dialPeriod},
		"the last that is quick":      {route.TCP, NewQuickDials(), quickTries, quickPeriod},
		"of one that takes long":      {route.TCP, NewQuickDials(), quickTries + 1, dialPeriod},
		"a datagram has its own time": {route.UDP, NewQuickDials(), 2, datagramPeriods[1]},
	} {
		p := port{queue: &Queue{opts: Options{QuickDials: c.quick}}, PortID: PortID{"game", c.network}, tries: c.tries}
		if p.space(now); p.notBefore.Sub(now) != c.want {
			t.Errorf("%s: the next dial comes after %s, want %s", name, p.notBefore.Sub(now), c.want)
		}
	}
	if few.Allow() {
		t.Error("a quick dial isn't counted")
	}
}
