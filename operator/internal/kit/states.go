package kit

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// States are a controller's memory of its objects between passes. All of it can be lost: a new
// leader begins with none.
type States[S any] struct {
	// New makes the state of a new object; nil: the zero S.
	New func() *S
	// Dropped is called with each state that is dropped; nil: nothing is.
	Dropped func(uid types.UID, state *S)

	mu  sync.Mutex
	all map[types.NamespacedName]*stateOf[S]
}

type stateOf[S any] struct {
	// uid distinguishes the object from a later one of its name.
	uid   types.UID
	state *S
}

// Of is the state of an object. Only the one worker that has the object may use it.
func (s *States[S]) Of(key types.NamespacedName, uid types.UID) *S {
	s.mu.Lock()
	entry := s.all[key]
	s.mu.Unlock()
	if entry != nil && entry.uid == uid {
		return entry.state
	}
	s.Forget(key)
	fresh := &stateOf[S]{uid: uid}
	if s.New != nil {
		fresh.state = s.New()
	} else {
		fresh.state = new(S)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[types.NamespacedName]*stateOf[S]{}
	}
	s.all[key] = fresh
	return fresh.state
}

// Forget drops an object's state.
func (s *States[S]) Forget(key types.NamespacedName) {
	s.mu.Lock()
	entry := s.all[key]
	delete(s.all, key)
	s.mu.Unlock()
	if entry != nil && s.Dropped != nil {
		s.Dropped(entry.uid, entry.state)
	}
}

// Keys are the objects that have a state.
func (s *States[S]) Keys() []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}
