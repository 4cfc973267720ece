package fleet

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/operator/internal/pending"
)

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
	m.writes.Add(s.uid, kind, at, s)
}
