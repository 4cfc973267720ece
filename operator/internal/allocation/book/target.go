package book

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

// targetState is what the book knows of a GameType, a Fleet or a Server as a whole.
type targetState struct {
	// held is how many have one of its Servers, or places there, and pending how many wait for one.
	held, pending int
	// lastUsed is when one of either ceased to be.
	lastUsed time.Time
	// services are its ElasticServices, and the phase of each.
	services map[string]phase
	// closing is the version of an ElasticService that is about to sleep; 0: none is.
	closing uint64
	// wake is set where somebody found it asleep who doesn't wait.
	wake bool
	// trouble is why it can't be woken; empty: it can, as far as is known.
	trouble string
}

type phase struct {
	phase   v1alpha1.Phase
	service string
	version uint64
}

// sleeps reports whether a service in a phase sleeps, or is about to.
func (p phase) sleeps() bool {
	return p.phase == v1alpha1.PhaseAsleep || p.phase == v1alpha1.PhaseFallingAsleep
}

// shut reports whether none of its Servers may be given, because it sleeps or is about to.
func (t *targetState) shut() bool {
	if t.closing > 0 {
		return true
	}
	for _, p := range t.services {
		if p.sleeps() {
			return true
		}
	}
	return false
}

// target is what is known of a target.
func (s *space) target(key string) *targetState {
	t := s.targets[key]
	if t == nil {
		t = &targetState{services: map[string]phase{}}
		s.targets[key] = t
	}
	return t
}

// tidy forgets a target of which nothing is known. That it was used lately matters only where it may
// sleep.
func (s *space) tidy(key string) {
	if t := s.targets[key]; t != nil && t.held == 0 && t.pending == 0 && len(t.services) == 0 && t.closing == 0 && len(s.members(key)) == 0 {
		delete(s.targets, key)
	}
}

// SetService takes in an ElasticService as the cache has it.
func (b *Book) SetService(es *v1alpha1.ElasticService) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(es.Namespace)
	if !target.Of(es).HasServers() {
		// Another API group may have a Fleet of the same name.
		b.forgetService(s, es.Name, "")
		b.leave(s)
		return
	}
	key := TargetKey(es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
	b.forgetService(s, es.Name, key)
	t := s.target(key)
	before := t.shut()
	is := phase{phase: es.Status.Phase, service: es.Spec.Service, version: version(es.ResourceVersion)}
	_, had := t.services[es.Name]
	t.services[es.Name], s.targetOf[es.Name] = is, key
	if t.closing > 0 && is.version > t.closing {
		t.closing = 0
	}
	if !is.sleeps() {
		t.trouble = ""
	}
	if t.shut() != before {
		b.reopen(s, key)
	}
	if t.shut() && t.pending > 0 {
		b.hooks.Wakes()
	}
	if !had {
		b.unused(s, key) // the last one may have gone before the book had it
	}
}

// DeleteService takes in that one is gone.
func (b *Book) DeleteService(es *v1alpha1.ElasticService) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(es.Namespace)
	b.forgetService(s, es.Name, "")
	b.leave(s)
}

// forgetService drops an ElasticService from its target, unless that is the one named.
func (b *Book) forgetService(s *space, name, but string) {
	key, ok := s.targetOf[name]
	if !ok || key == but {
		return
	}
	delete(s.targetOf, name)
	t := s.target(key)
	before := t.shut()
	delete(t.services, name)
	t.closing = 0
	if t.shut() != before {
		b.reopen(s, key)
	}
	s.tidy(key)
}

// reopen looks at a target's Servers again.
func (b *Book) reopen(s *space, key string) {
	for srv := range s.members(key) {
		s.place(srv)
		b.serve(s, srv)
	}
}

// Use is how a target is used.
type Use struct {
	// By says in a sentence that it is; empty: it isn't.
	By string
	// Last is when it ceased to be; zero: that isn't known.
	Last time.Time
}

// UseOf is how a target is used.
func (b *Book) UseOf(namespace, kind, name string) (u Use) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.spaces[namespace]
	if s == nil || s.targets[TargetKey(kind, name)] == nil {
		return u
	}
	t := s.targets[TargetKey(kind, name)]
	switch {
	case t.held > 0:
		u.By = "An Allocation has one of its Servers."
	case t.pending > 0:
		u.By = "An Allocation waits for one of its Servers."
	}
	u.Last = t.lastUsed
	return u
}

// unused tells of a target that is used no more.
func (b *Book) unused(s *space, key string) {
	t := s.targets[key]
	if t == nil || t.held > 0 || t.pending > 0 {
		return
	}
	for name := range t.services {
		b.hooks.Unused(types.NamespacedName{Namespace: s.name, Name: name})
	}
}

// Close asks for a target that is about to be put to sleep, with the resourceVersion of its
// ElasticService. None of its Servers is given any more until the cache shows a later one, unless it is
// used: then the answer is false.
func (b *Book) Close(namespace, kind, name, resourceVersion string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, key := b.space(namespace), TargetKey(kind, name)
	t := s.target(key)
	if t.held > 0 || t.pending > 0 {
		s.tidy(key)
		return false
	}
	before := t.shut()
	t.closing = max(1, version(resourceVersion))
	if !before {
		b.reopen(s, key)
	}
	return true
}

// Wakes are the Services, by namespace and name, of the targets that sleep and that somebody waits for.
func (b *Book) Wakes() map[types.NamespacedName]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	wakes := map[types.NamespacedName]string{}
	for _, s := range b.spaces {
		for key, t := range s.targets {
			if t.pending == 0 && !t.wake {
				continue
			}
			t.wake = false
			for _, p := range t.services {
				if p.sleeps() {
					wakes[types.NamespacedName{Namespace: s.name, Name: p.service}] = key
				}
			}
		}
	}
	return wakes
}

// Trouble takes in why a target can't be woken; empty: it was.
func (b *Book) Trouble(namespace, target, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.spaces[namespace]; s != nil && s.targets[target] != nil {
		s.targets[target].trouble = why
	}
}
