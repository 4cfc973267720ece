package fleet

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/fleet/startwindow"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// state is the controller's memory of one Fleet between passes. All of it can be lost.
type state struct {
	// generation is that of the spec whose template has the hash template.
	generation int64
	template   string
	hash       templatehash.Last
	// compared are Servers whose template had to be compared in full.
	compared map[types.UID]comparison
	backoff  backoff
	first    firstServers
	// starts and going are the Servers that were made and deleted a moment ago.
	starts, going times
	pacing        kit.Pacing
	// disksReported is set once the disks that earlier Servers left were looked for.
	disksReported bool
	// disks are those that outlive the Fleet.
	disks disks.Retention
	// status writes the Fleet's status.
	status kit.PlayersStatus
	// statusPutOff is set where the last pass left the status to the next: the Servers'
	// controller goes on at once with what that pass changed, and a player may wait for it.
	statusPutOff bool

	// mu guards writes while calls are made concurrently.
	mu     sync.Mutex
	writes pending.Writes[server]
}

// follow resets the delays when the template has changed: it may be fixed, and then nobody
// should have to wait.
func (m *state) follow(f *v1alpha1.Fleet) {
	if m.generation == f.Generation {
		return
	}
	if hash := m.hash.Of(f.Spec.Template); hash != m.template {
		m.backoff.forgive()
		m.template = hash
	}
	m.generation = f.Generation
}

// times are Servers by their names, with when they were made, or deleted, by this process' clock.
type times map[string]time.Time

// up drops those that are up, gone, or have been starting for long.
func (s times) up(now time.Time, servers []server) {
	still := make(map[string]bool, len(s))
	for i := range servers {
		if at, ok := s[servers[i].name]; ok && !servers[i].up() && !servers[i].deleting && now.Sub(at) < startwindow.Lasts {
			still[servers[i].name] = true
		}
	}
	maps.DeleteFunc(s, func(name string, _ time.Time) bool { return !still[name] })
}

// gone drops those of a Fleet's deleted Servers that are gone, or have been going for long.
func (s times) gone(now time.Time, servers []server) {
	there := make(map[string]bool, len(s))
	for i := range servers {
		if _, ok := s[servers[i].name]; ok {
			there[servers[i].name] = true
		}
	}
	maps.DeleteFunc(s, func(name string, at time.Time) bool { return !there[name] || now.Sub(at) >= goingFor })
}

// overlay lays the Fleet's pending writes over the Servers in the cache. Without them a pass
// would create and drain once more.
var overlay = pending.Overlay[server, server]{
	UID: func(s *server) types.UID { return s.uid },
	Merge: func(s *server, own pending.Write[server]) bool {
		switch {
		case own.Kind == pending.Delete && !s.deleting:
			s.deleting = true
		case own.Kind == pending.Change && s.generation < own.Object.generation:
			s.draining, s.ours = own.Object.draining, own.Object.ours
		default:
			return false
		}
		return true
	},
	Unseen: func(s server) server { return s },
}

// wrote remembers a write until the cache shows it.
func (m *state) wrote(at time.Time, kind pending.Kind, s server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes[s.uid] = pending.Write[server]{Object: s, At: at, Kind: kind}
}
