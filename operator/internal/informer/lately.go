package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// lately remembers something of objects, by their UIDs, for a time at least and for twice that
// time at most. What is outdated is dropped all at once, so that no call pays for all others.
type lately[V any] struct {
	keep    time.Duration
	began   time.Time // when now was begun
	now     map[types.UID]V
	earlier map[types.UID]V
}

// get is what was remembered last.
func (l *lately[V]) get(uid types.UID) (V, bool) {
	v, ok := l.now[uid]
	if !ok {
		v, ok = l.earlier[uid]
	}
	return v, ok
}

// set remembers v.
func (l *lately[V]) set(at time.Time, uid types.UID, v V) {
	if l.now == nil || at.Sub(l.began) > l.keep {
		l.earlier = l.now
		if at.Sub(l.began) > 2*l.keep {
			l.earlier = nil
		}
		l.now, l.began = map[types.UID]V{}, at
	}
	l.now[uid] = v
}
