package gameserver

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

// Reports are what sidecars have told, and what they are asked.
type Reports interface {
	// Look has the sidecar of a Server's Pod look anew whether the Server may be deleted.
	Look(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked
	// Turn waits until nobody else at this replica writes a Server's status, and returns what ends
	// the caller's turn.
	Turn(server types.UID) (end func())
	// Latest is a Server as the cache has it, or as a write left it that the cache doesn't have
	// yet.
	Latest(cached *v1alpha1.Server) *v1alpha1.Server
	// WroteAfter reports whether something later than this Server was written at this replica.
	WroteAfter(server *v1alpha1.Server) bool
	// Wrote notes how a write left a Server.
	Wrote(server *v1alpha1.Server)
}

// lastLooks ask sidecars that were told of their Server's end for a last time whether it may go,
// once no new player can come. That costs the API server nothing; the word of a sidecar that
// doesn't reply is waited for in the status.
type lastLooks struct {
	ask func(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked
	// replied brings a Server's next pass.
	replied func(types.NamespacedName)
	now     func() time.Time

	mu      sync.Mutex
	asking  int
	replies map[types.UID]lastReply // by the Server's UID; there are no more than Servers that end
}

type lastReply struct {
	podUID  types.UID
	pending bool
	allowed bool
	at      time.Time
	// again is when the sidecar may be asked again, and wait is how long after the reply that was.
	again time.Time
	wait  time.Duration
}

// allowed reports whether the Pod's sidecar has just replied that its Server may go.
func (l *lastLooks) allowed(s *v1alpha1.Server, pod *corev1.Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.replies[s.UID]
	return ok && r.podUID == pod.UID && r.allowed && l.now().Sub(r.at) <= lookCounts
}

// begin asks the Pod's sidecar, unless it is being asked or has just replied, and returns after
// how long to see to it again.
func (l *lastLooks) begin(ctx context.Context, s *v1alpha1.Server, pod *corev1.Pod) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.replies[s.UID]
	switch {
	case r.podUID != pod.UID:
		r = lastReply{podUID: pod.UID}
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

func (l *lastLooks) run(ctx context.Context, s *v1alpha1.Server, podUID types.UID) {
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

// forget drops what is known of a Server that is gone or goes on.
func (l *lastLooks) forget(uid types.UID) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.replies, uid)
}
