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
	for name, c := range map[string]struct {
		network route.Network
		quick   *rate.Limiter
		until   time.Time
		dials   int
		want    time.Duration
	}{
		"the first":                   {route.TCP, rate.NewLimiter(0, 2), time.Time{}, 2, quickPeriod},
		"more than may be":            {route.TCP, rate.NewLimiter(0, 2), time.Time{}, 3, dialPeriod},
		"where nothing bounds them":   {route.TCP, nil, time.Time{}, 1, dialPeriod},
		"in time":                     {route.TCP, NewQuickDials(), now.Add(1), 1, quickPeriod},
		"of one that takes long":      {route.TCP, NewQuickDials(), now, 1, dialPeriod},
		"a datagram has its own time": {route.UDP, NewQuickDials(), time.Time{}, 1, datagramPeriods[1]},
	} {
		p := port{queue: &Queue{opts: Options{QuickDials: c.quick}}, PortID: PortID{"game", c.network}, tries: 2, quickUntil: c.until}
		if p.space(now, c.dials); p.notBefore.Sub(now) != c.want {
			t.Errorf("%s: the next dial comes after %s, want %s", name, p.notBefore.Sub(now), c.want)
		}
		if c.until.IsZero() && !p.quickUntil.Equal(now.Add(quickTime)) {
			t.Errorf("%s: they are quick for %s", name, p.quickUntil.Sub(now))
		}
	}
	// Another container is behind the address, or somebody was delivered.
	p := port{queue: &Queue{}, quickUntil: now}
	if p.update(&route.Port{Backends: []route.Backend{backendAt(1, "a")}}); !p.quickUntil.IsZero() {
		t.Error("a new backend isn't dialled quickly")
	}
	p.quickUntil = now
	if p.delivered(); !p.quickUntil.IsZero() {
		t.Error("after a delivery the next dial isn't quick")
	}
}

// A server that takes connections and nothing that was held is dialled no more often than one that takes none.
func TestADialThatSucceedsIsFollowedByNoQuickOne(t *testing.T) {
	t.Parallel()
	q := newProbedQueue(t, route.Backend{})
	q.opts.QuickDials = NewQuickDials()
	r := q.route(route.Backend{})
	r.Ports[0].Probed = false
	q.Update(r)
	began := time.Now()
	q.hold()
	q.wantMade("at once", 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if next := q.port(probedPort).notBefore.Sub(began); next < dialPeriod {
		t.Errorf("the next dial comes %s after the client, want %s at least", next, dialPeriod)
	}
}
