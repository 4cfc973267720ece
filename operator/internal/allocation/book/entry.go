package book

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// entry is an Allocation.
type entry struct {
	object *v1alpha1.Allocation
	need   need
	// came orders Allocations of one second.
	came int
	// arrived is when it was first seen, and until is until when it may wait.
	arrived, until time.Time
	// on is the Server that it has; nil: none.
	on *server
	// waits is set while it is among those that wait.
	waits bool
	// decided is what is to be written; nil: nothing is.
	decided *Decision
	// seen is set once its Server was seen as the Allocation has it.
	seen bool
	// notified is set once Hooks.Held was told that its Server is held.
	notified bool
	// noted is set once its status says that it waits, or is about to.
	noted bool
	// due is when to look at it.
	due *due
}

func (e *entry) key() types.NamespacedName { return client.ObjectKeyFromObject(e.object) }

// SetAllocation takes in an Allocation as the cache has it, or as a write has left it. Listed is set
// for one that was there before this process.
func (b *Book) SetAllocation(o *v1alpha1.Allocation, listed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setAllocation(b.space(o.Namespace), o, listed)
}

// Written takes in an Allocation as the API server answered a write of its status. The cache may have
// shown since that it is gone: then it stays so, because no other word of that would come.
func (b *Book) Written(o *v1alpha1.Allocation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(o.Namespace)
	if e := s.entries[o.Name]; e != nil && e.object.UID == o.UID {
		b.setAllocation(s, o, false)
	}
}

func (b *Book) setAllocation(s *space, o *v1alpha1.Allocation, listed bool) {
	e := s.entries[o.Name]
	if e != nil && e.object.UID != o.UID {
		if older(o, e.object) {
			return
		}
		b.drop(s, e)
		e = nil
	}
	if e != nil && older(o, e.object) {
		return
	}
	now := b.now()
	if e == nil {
		if _, gone := b.gone[o.UID]; gone {
			return
		}
		b.count++
		e = &entry{need: needOf(o), came: b.count, arrived: now, until: now.Add(durationOf(o.Spec.Wait))}
		if listed {
			// The API server's time is a whole second, rounded down.
			e.until = o.CreationTimestamp.Add(durationOf(o.Spec.Wait) + time.Second)
		}
		e.due = &due{space: s, entry: e, index: -1}
		s.entries[o.Name] = e
	}
	e.object = o
	switch o.Status.State {
	case v1alpha1.AllocationAllocated:
		b.bound(s, e)
	case v1alpha1.AllocationRefused, v1alpha1.AllocationExpired:
		b.finished(s, e)
	default:
		b.waits(s, e)
	}
}

// older reports whether an object is older than what the book has.
func older(o, than *v1alpha1.Allocation) bool {
	return version(o.ResourceVersion) < version(than.ResourceVersion)
}

// version is a resourceVersion as a number, which Kubernetes says it is.
func version(v string) uint64 {
	n, _ := strconv.ParseUint(v, 10, 64) // 0 where there is none
	return n
}

// bound takes in an Allocation that has a Server.
func (b *Book) bound(s *space, e *entry) {
	end, ends := e.ends()
	timeLeft := !ends || b.now().Before(end)
	if d := e.decided; d != nil && (d.State != v1alpha1.AllocationExpired || d.Reason == reasons.TimeOver && timeLeft) {
		e.decided = nil // it is written, or was written otherwise, or has more time now
	}
	b.unwait(s, e)
	if srv := s.server(e.object.Status.ServerName); e.on != srv {
		b.release(s, e)
		b.hold(s, e, srv)
	}
	if !e.notified {
		e.notified = true
		b.hooks.Held(types.NamespacedName{Namespace: s.name, Name: e.on.name})
	}
	b.unset(e.due)
	if ends {
		b.set(e.due, end)
	}
	b.check(s, e)
	b.observe(e)
}

// ends is when its time is over.
func (e *entry) ends() (time.Time, bool) {
	ttl, at := durationOf(e.object.Spec.TTL), e.object.Status.AllocatedAt
	if ttl <= 0 || at == nil {
		return time.Time{}, false
	}
	return at.Add(ttl), true
}

// finished takes in an Allocation that is over.
func (b *Book) finished(s *space, e *entry) {
	if e.decided != nil && !e.decided.Delete {
		e.decided = nil
	}
	b.unwait(s, e)
	b.release(s, e)
	end := e.arrived
	if at := e.object.Status.FinishedAt; at != nil {
		end = at.Time
	}
	b.set(e.due, end.Add(keptFor))
	b.observe(e)
}

// waits takes in an Allocation that has no answer.
func (b *Book) waits(s *space, e *entry) {
	if e.object.Status.State == v1alpha1.AllocationPending {
		e.noted = true
		if e.decided != nil && e.decided.State == v1alpha1.AllocationPending {
			e.decided = nil
		}
	}
	if e.decided != nil || e.waits || e.on != nil {
		return
	}
	b.wait(s, e)
	if b.leads {
		b.decide(s, e)
	}
}

// wait puts an Allocation among those that wait.
func (b *Book) wait(s *space, e *entry) {
	i, _ := slices.BinarySearchFunc(s.waiting, e, func(a, e *entry) int {
		return cmp.Or(a.object.CreationTimestamp.Compare(e.object.CreationTimestamp.Time), cmp.Compare(a.came, e.came))
	})
	s.waiting = slices.Insert(s.waiting, i, e)
	e.waits = true
	b.pending++
	s.target(e.need.target).pending++
	if at := e.arrived.Add(noteAfter); !e.noted && at.Before(e.until) {
		b.set(e.due, at)
	} else {
		b.set(e.due, e.until)
	}
}

func (b *Book) unwait(s *space, e *entry) {
	if !e.waits {
		return
	}
	e.waits = false
	b.pending--
	s.waiting = slices.DeleteFunc(s.waiting, func(other *entry) bool { return other == e })
	t := s.target(e.need.target)
	t.pending--
	t.lastUsed = b.now()
	b.unused(s, e.need.target)
	s.tidy(e.need.target)
}

// DeleteAllocation takes in that an Allocation is gone.
func (b *Book) DeleteAllocation(o *v1alpha1.Allocation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.space(o.Namespace)
	if b.gone != nil {
		b.gone[o.UID] = struct{}{}
	}
	if e := s.entries[o.Name]; e != nil && e.object.UID == o.UID {
		b.drop(s, e)
	}
	b.leave(s)
}

func (b *Book) drop(s *space, e *entry) {
	delete(s.entries, e.object.Name)
	e.decided = nil
	b.unset(e.due)
	b.unwait(s, e)
	b.release(s, e)
}

// hold has an Allocation have a Server.
func (b *Book) hold(s *space, e *entry, srv *server) {
	e.on = srv
	srv.hold(e)
	for _, owner := range srv.owners {
		s.target(owner).held++
	}
	s.place(srv)
}

// release ends that, and gives the room to one that waits.
func (b *Book) release(s *space, e *entry) {
	srv := e.on
	if srv == nil {
		return
	}
	e.on, e.notified, e.seen = nil, false, false
	srv.let(e)
	for _, owner := range srv.owners {
		t := s.target(owner)
		t.held--
		t.lastUsed = b.now()
	}
	b.hooks.Held(types.NamespacedName{Namespace: s.name, Name: srv.name})
	s.place(srv)
	b.serve(s, srv)
	for _, owner := range srv.owners {
		b.unused(s, owner)
	}
	b.forget(s, srv)
}
