package informer

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory remembers something of objects, by their UIDs, for a time at least after it was asked
// for, and for twice that time at most. What is outdated is dropped all at once, so that no call
// pays for all others.
type memory[V any] struct {
	keep time.Duration

	mu      sync.Mutex
	began   time.Time // when now was begun
	now     map[types.UID]*V
	earlier map[types.UID]*V
}

// of is what is remembered of an object, for the caller to change; the zero V where that is nothing.
func (m *memory[V]) of(at time.Time, uid types.UID) *V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil || at.Sub(m.began) > m.keep {
		m.earlier = m.now
		if at.Sub(m.began) > 2*m.keep {
			m.earlier = nil
		}
		m.now, m.began = map[types.UID]*V{}, at
	}
	v := m.now[uid]
	if v == nil {
		if v = m.earlier[uid]; v == nil {
			v = new(V)
		}
		m.now[uid] = v
		delete(m.earlier, uid)
	}
	return v
}
