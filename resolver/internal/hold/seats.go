package hold

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// reportTime is how long a new client may be missing in what its server reports: a
// report is at most ten seconds old when it comes, and is written within a second
// or two. Whoever isn't counted by then doesn't play.
const reportTime = 15 * time.Second

// load is what is known of one pod's players. The queue's lock guards it.
type load struct {
	route.Players
	counts   bool
	reported bool
	sessions int
	// fresh is when those began that no report has counted, the oldest first.
	fresh []time.Time
}

// at is the load at a time.
func (l *load) at(now time.Time) Load {
	old := 0
	for old < len(l.fresh) && now.Sub(l.fresh[old]) >= reportTime {
		old++
	}
	l.fresh = l.fresh[old:]
	return Load{Players: l.Current, Capacity: l.Capacity, Counts: l.counts, Sessions: l.sessions, Fresh: len(l.fresh)}
}

// report takes in what the game said. Players who are more than before are those
// who came first of who isn't counted yet.
func (l *load) report(p route.Players) {
	if l.reported {
		l.fresh = l.fresh[min(max(p.Current-l.Current, 0), len(l.fresh)):]
	}
	l.Players, l.reported = p, true
	l.counts = l.counts || p.Current > 0
}

// Seat is a client's place on a server that was chosen for it.
type Seat struct {
	queue *Queue
	load  *load
	began time.Time
	left  bool
}

// Leave gives the seat back, once. A nil Seat is none.
func (s *Seat) Leave() {
	if s == nil {
		return
	}
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.left {
		return
	}
	s.left = true
	s.load.sessions--
	if i := slices.IndexFunc(s.load.fresh, s.began.Equal); i >= 0 {
		s.load.fresh = slices.Delete(s.load.fresh, i, i+1)
	}
	q.roomMade()
}

// sit gives a client a seat on a server; nil where servers are not chosen. It is
// called with the queue's lock.
func (s *server) sit(q *Queue, now time.Time) *Seat {
	if s.load == nil {
		return nil
	}
	s.load.sessions++
	s.load.fresh = append(s.load.fresh, now)
	return &Seat{queue: q, load: s.load, began: now}
}

// sitAt is sit for a server by its address.
func (p *port) sitAt(address netip.AddrPort, now time.Time) *Seat {
	i := slices.IndexFunc(p.servers, func(s *server) bool { return s.Address == address })
	if i < 0 {
		return nil
	}
	return p.servers[i].sit(p.queue, now)
}

// Seats is how many clients have a place on a server that was chosen for them.
func (q *Queue) Seats() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	seats := 0
	for _, l := range q.loads {
		seats += l.sessions
	}
	return seats
}

// roomMade lets who waits look again.
func (q *Queue) roomMade() {
	for _, p := range q.ports {
		if len(p.waiting) > 0 {
			p.wake()
		}
	}
}

// crowded says that all who wait do so because the servers are full, which waking
// doesn't change.
func (q *Queue) crowded() bool {
	now := time.Now()
	for _, p := range q.ports {
		for _, s := range p.servers {
			if len(p.waiting) > 0 && !s.Terminating && s.hasRoom(now) {
				return false
			}
		}
		if len(p.waiting) > 0 && len(p.servers) == 0 {
			return false
		}
	}
	return q.route.Phase == v1alpha1.PhaseAwake
}

// Players takes in what a pod's game reported; nil: that isn't known any more.
func (q *Queue) Players(pod types.UID, players *route.Players) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if players != nil {
		q.loadOf(string(pod)).report(*players)
	} else if l := q.loads[string(pod)]; l != nil {
		l.Players, l.reported = route.Players{}, false
	}
	q.roomMade()
}

// loadOf finds the load of a pod, by its UID or, where that isn't known, its address.
func (q *Queue) loadOf(key string) *load {
	l := q.loads[key]
	if l == nil {
		l = &load{}
		q.loads[key] = l
	}
	return l
}

// setLoads gives each server its pod's load where the route chooses among them, and
// forgets those of pods that are gone.
func (q *Queue) setLoads() {
	used := make(map[*load]bool, len(q.loads))
	for _, p := range q.ports {
		for _, s := range p.servers {
			s.load = nil
			if q.route.Balance == "" {
				continue
			}
			key := string(s.Pod)
			if key == "" {
				key = s.Address.String()
			}
			s.load = q.loadOf(key)
			used[s.load] = true
		}
	}
	for key, l := range q.loads {
		if !used[l] && (!l.reported || q.route.Balance == "") {
			delete(q.loads, key)
		}
	}
}
