package hold

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// reportTime is how long a new client may be missing in its backend's reports: a report is at
// most ten seconds old when it comes, and is written within a second or two. A client that
// isn't counted by then doesn't play.
const reportTime = 15 * time.Second

// load is what is known of one pod's players. The queue's lock guards it.
type load struct {
	route.Players
	counts   bool
	reported bool
	sessions int
	// fresh has the start of each client that no report has counted, the oldest first.
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

// report takes in the game's report. Additional players count as the oldest clients that
// weren't counted yet.
func (l *load) report(p route.Players) {
	if l.reported {
		l.fresh = l.fresh[min(max(p.Current-l.Current, 0), len(l.fresh)):]
	}
	l.Players, l.reported = p, true
	l.counts = l.counts || p.Current > 0
}

// Slot is a client's place on a backend that was chosen for it.
type Slot struct {
	queue *Queue
	load  *load
	began time.Time
	left  bool
}

// Leave gives the slot back, once. A nil Slot is none.
func (s *Slot) Leave() {
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

// takeSlot gives a client a slot on a backend; nil where backends are not chosen. It is
// called with the queue's lock.
func (s *backend) takeSlot(q *Queue, now time.Time) *Slot {
	if s.load == nil {
		return nil
	}
	s.load.sessions++
	s.load.fresh = append(s.load.fresh, now)
	return &Slot{queue: q, load: s.load, began: now}
}

// Slots is how many clients have a slot on a backend.
func (q *Queue) Slots() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	slots := 0
	for _, l := range q.loads {
		slots += l.sessions
	}
	return slots
}

// roomMade has the clients that wait look again.
func (q *Queue) roomMade() {
	for _, p := range q.ports {
		if len(p.waiting) > 0 {
			p.wake()
		}
	}
}

// crowded reports whether all clients that wait do so because the backends are full, which
// waking doesn't change.
func (q *Queue) crowded() bool {
	now := time.Now()
	for _, p := range q.ports {
		for _, s := range p.backends {
			if len(p.waiting) > 0 && !s.Terminating && s.hasRoom(now) {
				return false
			}
		}
		if len(p.waiting) > 0 && len(p.backends) == 0 {
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
		if q.loads == nil {
			q.loads = map[string]*load{}
		}
		q.loads[key] = l
	}
	return l
}

// setLoads gives each backend its pod's load where the route has a Balance, and forgets the
// loads of pods that are gone.
func (q *Queue) setLoads() {
	if q.route.Balance == "" && len(q.loads) == 0 {
		for _, p := range q.ports {
			for _, s := range p.backends {
				s.load = nil
			}
		}
		return
	}
	used := make(map[*load]bool, len(q.loads))
	for _, p := range q.ports {
		for _, s := range p.backends {
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
