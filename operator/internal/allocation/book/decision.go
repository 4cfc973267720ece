package book

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
)

// Decision is what is to be written of an Allocation.
type Decision struct {
	// State is the Allocation's new one.
	State v1alpha1.AllocationState
	// Reason and Message say why it has no Server.
	Reason, Message string
	// Delete is set where the Allocation is to be deleted, instead.
	Delete bool
	// Unsure is set where the Server was never seen as the Allocation has it: the cache may lag behind that. It
	// is taken back once the cache shows the Server.
	Unsure bool
	// Observed is set where nothing changes but the generation that was observed; State is empty.
	Observed bool
	// Waited is how long it has waited since it was first seen.
	Waited time.Duration

	// given has the Server, as it was when it was given.
	given v1alpha1.AllocationStatus
	at    time.Time
}

// Status is the Allocation's status by the decision, but for its conditions.
func (d *Decision) Status(before *v1alpha1.AllocationStatus) v1alpha1.AllocationStatus {
	after := *before.DeepCopy()
	if d.Observed {
		return after
	}
	after.State = d.State
	switch d.State {
	case v1alpha1.AllocationAllocated:
		d.given.DeepCopyInto(&after)
		after.State, after.Conditions = d.State, before.Conditions
		after.AllocatedAt = &metav1.MicroTime{Time: d.at}
	case v1alpha1.AllocationRefused, v1alpha1.AllocationExpired:
		after.FinishedAt = &metav1.Time{Time: d.at}
	case v1alpha1.AllocationPending:
	}
	return after
}

// Decided is what is to be written of an Allocation, and the Allocation as it is known, which must not
// be changed; nil: nothing is.
func (b *Book) Decided(key types.NamespacedName) (*v1alpha1.Allocation, *Decision) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.spaces[key.Namespace]
	if s == nil || s.entries[key.Name] == nil || s.entries[key.Name].decided == nil {
		return nil, nil
	}
	e := s.entries[key.Name]
	return e.object, e.decided
}

func (b *Book) say(e *entry, d Decision) {
	d.at = b.now()
	d.Waited = d.at.Sub(e.arrived)
	e.decided = &d
	b.hooks.Decided(e.key())
}

// decide gives an Allocation that waits a Server, or refuses it one, or has it wait on.
func (b *Book) decide(s *space, e *entry) {
	if !e.waits {
		return
	}
	if srv := b.view(s, &e.need).choose(&e.need, b.nodes); srv != nil {
		b.give(s, e, srv)
		return
	}
	t := s.target(e.need.target)
	if t.shut() {
		t.wake = true
		b.hooks.Wakes()
	}
	switch wait := e.until.Sub(b.now()); {
	case wait <= 0:
		b.refuse(s, e, refusalOf(e))
	case len(s.waiting) > maxPending && !b.unbounded:
		b.refuse(s, e, reasons.TooManyWait)
	}
}

// refusalOf is why an Allocation is refused whose time is over.
func refusalOf(e *entry) string {
	if durationOf(e.object.Spec.Wait) > 0 {
		return reasons.WaitOver
	}
	return reasons.NoServerFree
}

func (b *Book) give(s *space, e *entry, srv *server) {
	b.hold(s, e, srv)
	b.unwait(s, e)
	d := Decision{State: v1alpha1.AllocationAllocated, Reason: reasons.OK}
	srv.given(&d.given)
	d.Message = fmt.Sprintf("It has Server %s.", srv.name)
	if e.need.places > 0 {
		d.Message = fmt.Sprintf("It has %d places on Server %s.", e.need.places, srv.name)
	}
	b.say(e, d)
}

func (b *Book) refuse(s *space, e *entry, reason string) {
	message := s.nothing(&e.need)
	switch reason {
	case reasons.TooManyWait:
		message = fmt.Sprintf("%d Allocations of the namespace wait already.", maxPending)
	case reasons.WaitOver:
		message += fmt.Sprintf(" It has waited for %s.", durationOf(e.object.Spec.Wait))
	}
	b.unwait(s, e)
	b.say(e, Decision{State: v1alpha1.AllocationRefused, Reason: reason, Message: message})
}

// nothing says why nothing is free.
func (s *space) nothing(n *need) string {
	if n.target == "" {
		return "No Server with these labels has room."
	}
	t, who := s.targets[n.target], strings.Replace(n.target, "/", " ", 1)
	switch servers := len(s.members(n.target)); {
	case t != nil && t.trouble != "":
		return fmt.Sprintf("%s sleeps, and isn't woken: %s.", who, t.trouble)
	case t != nil && t.shut():
		return who + " sleeps; its wake was asked for."
	case servers == 0:
		return who + " has no Server."
	case servers == 1:
		return who + " has one Server, and that has no room."
	default:
		return fmt.Sprintf("None of the %d Servers of %s has room.", servers, who)
	}
}

// serve gives a Server's room to those that wait.
func (b *Book) serve(s *space, srv *server) {
	if !b.leads || len(s.waiting) == 0 {
		return
	}
	left := s.room(srv)
	for i := 0; i < len(s.waiting) && (left.whole || left.places > 0); {
		e := s.waiting[i]
		if !left.fits(&e.need) || !srv.fills(e.need.question) {
			i++
			continue
		}
		b.give(s, e, srv)
		left = s.room(srv)
	}
}

// check looks whether an Allocation still has its Server.
func (b *Book) check(s *space, e *entry) {
	srv := e.on
	if !b.leads || srv == nil {
		return
	}
	if e.object.Status.State != v1alpha1.AllocationAllocated {
		// It isn't written yet: it may get another one.
		gone := srv.object == nil || e.decided != nil && (string(srv.object.UID) != e.decided.given.ServerUID || string(srv.podUID) != e.decided.given.PodUID)
		if gone || srv.crowds(e) {
			e.decided = nil
			b.wait(s, e)
			b.release(s, e)
			b.decide(s, e)
		}
		return
	}
	if e.decided != nil && !e.decided.Observed && !e.decided.Unsure {
		return // it ends already
	}
	if why := srv.lacks(&e.object.Status); why != "" {
		if e.decided == nil || e.decided.Observed {
			b.say(e, Decision{
				State: v1alpha1.AllocationExpired, Reason: reasons.ServerGone, Unsure: !e.seen,
				Message: fmt.Sprintf("Server %s is gone: %s.", srv.name, why),
			})
		}
		return
	}
	e.seen = true
	if e.decided != nil && e.decided.Unsure {
		e.decided = nil
		b.observe(e)
	}
	if srv.crowds(e) {
		b.say(e, Decision{State: v1alpha1.AllocationExpired, Reason: reasons.GivenTwice, Message: fmt.Sprintf("Another Allocation has Server %s.", srv.name)})
		return
	}
	if end, ok := e.ends(); ok && !b.now().Before(end) {
		b.say(e, Decision{State: v1alpha1.AllocationExpired, Reason: reasons.TimeOver, Message: fmt.Sprintf("Its ttl of %s is over.", durationOf(e.object.Spec.TTL))})
	}
}

// observe has the status of an Allocation that is answered say that its edit was observed.
func (b *Book) observe(e *entry) {
	if b.leads && e.decided == nil && e.object.Status.ObservedGeneration < e.object.Generation {
		b.say(e, Decision{Observed: true})
	}
}

// isDue does what is due for an Allocation.
func (b *Book) isDue(now time.Time, s *space, e *entry) {
	switch {
	case e.waits && !now.Before(e.until):
		b.refuse(s, e, refusalOf(e))
	case e.waits:
		if !e.noted {
			e.noted = true
			b.say(e, Decision{State: v1alpha1.AllocationPending, Reason: reasons.Pending, Message: s.nothing(&e.need)})
		}
		b.set(e.due, e.until)
	case e.on != nil:
		b.check(s, e)
	case e.object.Status.FinishedAt != nil && !now.Before(e.object.Status.FinishedAt.Add(keptFor)):
		b.say(e, Decision{Delete: true})
	}
}

func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}
