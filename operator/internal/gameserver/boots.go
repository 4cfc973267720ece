package gameserver

import (
	"sync"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// maxBoots bounds the games whose boots are remembered. One beyond them takes another's place.
const maxBoots = 10_000

// boots remembers how long each game takes from its container's start until it is Ready, as this
// process has seen it: a moving average.
type boots struct {
	mu    sync.Mutex
	usual map[string]time.Duration
}

// of is how long a game usually takes; 0: not known.
func (b *boots) of(game string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usual[game]
}

// took takes in that a game took so long.
func (b *boots) took(game string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if had, ok := b.usual[game]; ok {
		d = (3*had + d) / 4
	} else if len(b.usual) >= maxBoots {
		for other := range b.usual {
			delete(b.usual, other)
			break
		}
	}
	b.usual[game] = d
}

// bootOf names what a Server's boots are remembered by: its GameType, its Fleet, or itself.
func bootOf(s *v1alpha1.Server) string {
	for _, label := range []string{wellknown.GameTypeLabel, wellknown.FleetLabel} {
		if name := s.Labels[label]; name != "" {
			return s.Namespace + "/" + label + "/" + name
		}
	}
	return s.Namespace + "/" + s.Name
}

// noteBoot takes in a boot that has just ended.
func (r *Reconciler) noteBoot(now time.Time, before, s *v1alpha1.Server, o observed) {
	if before.Status.State != v1alpha1.ServerStarting || s.Status.State != v1alpha1.ServerReady || o.pod == nil {
		return
	}
	if started := gameStarted(o.pod); !started.IsZero() {
		r.boots.took(bootOf(s), max(0, now.Sub(started)))
	}
}
