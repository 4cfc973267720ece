package slim

import (
	"cmp"
	"reflect"
	"sync"
)

// kept is how many values a Pool keeps at most, unless it says otherwise.
const kept = 512

// Pool keeps values of which many objects have equal ones, so that they have one. A value in it must
// not be changed. It is a cache: what it has forgotten is only not shared.
type Pool[T any] struct {
	// keeps is how many values it keeps at most; 0: kept.
	keeps int

	mu     sync.Mutex
	values map[string]T
}

// One is the value to have in place of another: an equal one that is kept at its key, or else
// itself, which is kept from now on.
func (p *Pool[T]) One(key string, value T) T {
	p.mu.Lock()
	have, ok := p.values[key]
	p.mu.Unlock()
	// Without the lock: it takes some microseconds.
	if ok && reflect.DeepEqual(have, value) {
		return have
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.values[key]; !ok && len(p.values) >= cmp.Or(p.keeps, kept) || p.values == nil {
		p.values = map[string]T{}
	}
	p.values[key] = value
	return value
}
