package elasticservice

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/times"
)

// Resolver pods stand in for every service, so a change of them is relevant to all. Where one is
// replaced, its successor becomes ready and then it is told to end: both come within a moment,
// and one pass of each service does for both.

// resolversSettle is how long services wait for a second change of resolver pods after one that
// costs nobody anything: a further pod that takes clients, or one that is told to end, which
// takes clients until no slice lists it.
const resolversSettle = 2 * time.Second

// maxBacklog is how many workers are busy at most with passes that nobody waits for, and maxFirsts with
// the first ones of a new leader: nearly all of those change nothing, while a change of resolver pods
// has to be in all slices. Twice as many are done a fifth sooner at most, and take the API server's processors from wake
// calls: with 5,000 services 99 in 100 of those were answered within 71 to 77 ms then, and within 42 ms with four.
const (
	maxBacklog = maxConcurrent / 4
	maxFirsts  = 2
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// resolverChanges asks for passes of all services when resolver pods change.
type resolverChanges struct {
	// wait is how long a change that isn't urgent waits.
	wait time.Duration
	// all asks for the passes.
	all func(context.Context, queue)

	mu    sync.Mutex
	timer *time.Timer // nil: no change waits
}

// handler is the handler for resolver pods' events. onlyOne reports whether a pod is the only
// one that stands in.
func (c *resolverChanges) handler(onlyOne func(context.Context, *corev1.Pod) bool) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			pod, ok := e.Object.(*corev1.Pod)
			c.note(ctx, q, !ok || onlyOne(ctx, pod))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok1 := e.ObjectOld.(*corev1.Pod)
			after, ok2 := e.ObjectNew.(*corev1.Pod)
			added := ok1 && ok2 && !resolvers.StandsIn(before) && resolvers.StandsIn(after) && !onlyOne(ctx, after)
			ends := ok2 && !after.DeletionTimestamp.IsZero()
			c.note(ctx, q, !added && !ends)
		},
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { c.note(ctx, q, true) },
	}
}

// note takes in a change. An urgent one takes those along that wait.
func (c *resolverChanges) note(ctx context.Context, q queue, urgent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case urgent:
		if c.timer != nil {
			c.timer.Stop()
			c.timer = nil
		}
		c.all(ctx, q)
	case c.timer == nil:
		c.timer = time.AfterFunc(c.wait, func() { c.note(ctx, q, true) })
	}
}

// onlyOne reports whether no resolver pod but this one stands in.
func (r *Reconciler) onlyOne(ctx context.Context, pod *corev1.Pod) bool {
	var pods corev1.PodList
	// They are only read.
	err := r.Client.List(ctx, &pods, client.InNamespace(r.Resolvers.Namespace), client.MatchingLabelsSelector{Selector: r.Resolvers.Selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return true // only when the cache has stopped, and so has the operator
	}
	for i := range pods.Items {
		if other := &pods.Items[i]; other.UID != pod.UID && resolvers.StandsIn(other) {
			return false
		}
	}
	return true
}

// all asks for passes of all services: at once of those that somebody may wait for, and in turn
// of the others, those first whose clients go to resolvers.
func (r *Reconciler) all(ctx context.Context, q queue) {
	var list v1alpha1.ElasticServiceList
	// They are only read.
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // only when the cache has stopped, and so has the operator
	}
	var behind, aside []reconcile.Request
	for i := range list.Items {
		es := &list.Items[i]
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(es)}
		switch {
		case awaited(es):
			q.Add(request)
		case es.Status.Mode == v1alpha1.ModeServe:
			aside = append(aside, request)
		default:
			behind = append(behind, request)
		}
	}
	r.backlog.Add(append(behind, aside...)...)
}

// awaited reports whether somebody may wait for a service's pass, as for one that was woken while there was
// no leader: others may wake with it.
func awaited(es *v1alpha1.ElasticService) bool {
	if es.Status.Phase == v1alpha1.PhaseAsleep && times.Micro(es.Status.LastWakeTime).After(times.Micro(es.Status.LastSleepTime)) {
		return true
	}
	return es.Status.Phase == v1alpha1.PhaseWaking || es.Status.Phase == v1alpha1.PhaseFallingAsleep || es.Status.Queued > 0
}

// creations asks for the first passes. It alone does: what is made while the controller's handlers are
// added is there at the start for some of them, and new for others.
func (r *Reconciler) creations() handler.EventHandler {
	return handler.Funcs{CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
		es, ok := e.Object.(*v1alpha1.ElasticService)
		if request := (reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}); !ok || !e.IsInInitialList || awaited(es) {
			q.Add(request)
		} else {
			r.firsts.Add(request)
		}
	}}
}

// turnsOf is where a service that is at rest, asleep and with its target at zero, has this pass in its turn; nil: it
// is not at rest, or somebody may wait for the pass.
func (r *Reconciler) turnsOf(es *v1alpha1.ElasticService, o *planner.Observed) *kit.Backlog {
	if es.Status.Phase != v1alpha1.PhaseAsleep || awaited(es) || !es.DeletionTimestamp.IsZero() || o.Scale.Err != nil || o.Scale.Replicas != 0 {
		return nil
	}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(es)}
	for _, b := range []*kit.Backlog{r.backlog, r.firsts} {
		if b.Took(request) {
			return b
		}
	}
	return nil
}

// coming are the UIDs of services that are asleep and have their turns now or next.
func (r *Reconciler) coming(ctx context.Context, turns *kit.Backlog) (uids []string) {
	for _, request := range turns.Coming(resolvers.MaxAhead) {
		es := &v1alpha1.ElasticService{}
		// It is only read.
		if r.Client.Get(ctx, request.NamespacedName, es, client.UnsafeDisableDeepCopy) == nil && es.Status.Phase == v1alpha1.PhaseAsleep {
			uids = append(uids, string(es.UID))
		}
	}
	return uids
}

// Backlog is how many passes nobody waits for and haven't ended.
func (r *Reconciler) Backlog() int { return r.backlog.Len() + r.firsts.Len() }
