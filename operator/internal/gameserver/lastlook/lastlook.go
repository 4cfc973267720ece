// Package lastlook asks sidecars that were told of their Server's end for a last time whether it may
// go, once no new player can come. It decides which one is asked when, and for how long a reply counts.
package lastlook

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

const (
	// maxLooks is how many sidecars are asked at once. One that doesn't answer takes
	// reportapi.LookTime.
	maxLooks = 128
	// lookRetry is when a Server is looked at again whose sidecar couldn't be asked for the others,
	// or didn't reply.
	lookRetry = 500 * time.Millisecond
	// maxLookRetry bounds how seldom one is asked that doesn't reply.
	maxLookRetry = 30 * time.Second
	// lookCounts is how long a sidecar's reply counts: for the pass that it causes.
	lookCounts = 2 * time.Second
)

// Ask has the sidecar of a Server's Pod look anew whether the Server may be deleted.
type Ask func(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked

// Looks are the last looks of many Servers. They cost the API server nothing; the word of a sidecar
// that doesn't reply is waited for in the status. No Looks, nil, forget and allow nothing.
type Looks struct {
	ask Ask
	// replied brings a Server's next pass.
	replied func(types.NamespacedName)
	now     func() time.Time

	mu      sync.Mutex
	asking  int
	replies map[types.UID]reply // by the Server's UID; there are no more than Servers that end
}

// New returns Looks that ask in that way, and call replied when a sidecar has replied.
func New(ask Ask, replied func(server types.NamespacedName), now func() time.Time) *Looks {
	return &Looks{ask: ask, replied: replied, now: now, replies: map[types.UID]reply{}}
}

type reply struct {
	podUID  types.UID
	pending bool
	allowed bool
	at      time.Time
	// again is when the sidecar may be asked again, and wait is how long after the reply that was.
	again time.Time
	wait  time.Duration
}

// Allowed reports whether the Pod's sidecar has just replied that its Server may go.
func (l *Looks) Allowed(s *v1alpha1.Server, pod *corev1.Pod) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.replies[s.UID]
	return ok && r.podUID == pod.UID && r.allowed && l.now().Sub(r.at) <= lookCounts
}

// Begin asks the Pod's sidecar, unless it is being asked or has just replied, and returns after
// how long to see to it again.
func (l *Looks) Begin(ctx context.Context, s *v1alpha1.Server, pod *corev1.Pod) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.replies[s.UID]
	switch {
	case r.podUID != pod.UID:
		r = reply{podUID: pod.UID}
	case r.pending:
		return lookRetry
	case l.now().Before(r.again):
		return r.again.Sub(l.now())
	}
	if l.asking >= maxLooks {
		return lookRetry
	}
	l.asking++
	r.pending = true
	l.replies[s.UID] = r
	go l.run(context.WithoutCancel(ctx), s.DeepCopy(), pod.UID)
	return lookRetry + reportapi.LookTime
}

func (l *Looks) run(ctx context.Context, s *v1alpha1.Server, podUID types.UID) {
	looked := l.ask(ctx, s, podUID)
	l.mu.Lock()
	l.asking--
	// A Server that went, or goes on, is forgotten.
	r, wanted := l.replies[s.UID]
	if wanted = wanted && r.podUID == podUID; wanted {
		r.pending, r.at = false, l.now()
		r.allowed = looked.Replied && looked.ShutdownSeen && looked.DeletionAllowed
		if r.wait = min(max(lookRetry, 2*r.wait), maxLookRetry); looked.Replied {
			r.wait = lookRetry
		}
		r.again = r.at.Add(r.wait)
		l.replies[s.UID] = r
	}
	l.mu.Unlock()
	if wanted && looked.Replied {
		l.replied(client.ObjectKeyFromObject(s))
	}
}

// Forget drops what is known of a Server that is gone or goes on.
func (l *Looks) Forget(uid types.UID) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.replies, uid)
}
