package gameserver

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// What a Server that comes up may keep to itself, and for how long: that its Pod has
// no node yet, and what changes with every step that the Pod makes then.
const (
	quietPending  = 3 * time.Second
	quietStarting = 10 * time.Second
)

// quietFor says for how long what a pass has found out needn't be written: a new
// Server's being Pending, and what changes on one that starts and goes on to start.
func quietFor(now time.Time, before, after *v1alpha1.Server, o observed) time.Duration {
	switch {
	case before.Status.State == "" && after.Status.State == v1alpha1.ServerPending && readyOf(after).reason == v1alpha1.ReasonPending:
		return before.CreationTimestamp.Add(quietPending).Sub(now)
	case before.Status.State == v1alpha1.ServerStarting && after.Status.State == v1alpha1.ServerStarting && o.pod != nil &&
		sameForPeople(before.Status.Conditions, after.Status.Conditions):
		return o.pod.CreationTimestamp.Add(quietStarting).Sub(now)
	default:
		return 0
	}
}

// sameForPeople says whether two states of a Server's conditions tell a person the
// same: why it isn't ready, and whether it may be deleted.
func sameForPeople(a, b []metav1.Condition) bool {
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionDeletionAllowed} {
		before, after := meta.FindStatusCondition(a, kind), meta.FindStatusCondition(b, kind)
		if before == nil || after == nil || before.Status != after.Status || kind == v1alpha1.ConditionReady && before.Reason != after.Reason {
			return false
		}
	}
	return true
}

// recent remembers what was made a moment ago.
type recent struct {
	keep time.Duration

	mu sync.Mutex
	at map[string]time.Time
}

func newRecent(keep time.Duration) *recent { return &recent{keep: keep, at: map[string]time.Time{}} }

func (r *recent) add(what string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, at := range r.at {
		if now.Sub(at) >= r.keep {
			delete(r.at, other)
		}
	}
	r.at[what] = now
}

func (r *recent) has(what string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[what]
	return ok && now.Sub(at) < r.keep
}

func (r *recent) forget(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, what)
}
