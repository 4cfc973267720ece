package gameserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameserver/planner"
	"dormouse.dev/dormouse/operator/internal/gameserver/slowstart"
	"dormouse.dev/dormouse/operator/internal/hostports"
)

// observe reads what a plan is made from, from the cache alone.
func (r *Reconciler) observe(ctx context.Context, s *v1alpha1.Server) (planner.Observed, error) {
	o := planner.Observed{NodeLostAfter: r.NodeLostAfter}
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(s), pod, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		o.Made = r.made.Has(string(s.UID), r.Now())
		return o, nil
	case err != nil:
		return o, fmt.Errorf("read Pod %s: %w", client.ObjectKeyFromObject(s), err)
	case !metav1.IsControlledBy(pod, s):
		o.Stranger = true
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Server" && owner.Name == s.Name && pod.DeletionTimestamp == nil {
			o.Orphan = pod
		}
		return o, nil
	}
	o.Pod = pod
	o.UsualBoot = r.boots.Of(s)
	if r.Allocations != nil {
		o.Holder = r.Allocations.HolderOf(s.Namespace, s.Name, s.UID)
	}
	o.LookAllows = r.looks.Allowed(s, pod)
	r.made.Forget(string(s.UID))
	o.Clashes = r.picker.Clashes(s, hostports.Of(s, pod))
	o.Patience = r.picker.Patience(s.UID)
	r.tell(r.picker.Hold(s.UID, hostports.Of(s, pod)))
	if planner.AwaitsHostPort(pod) && hostports.Picks(s) {
		o.Better, o.BetterInVain = r.picker.Better(s, false), r.picker.Better(s, true)
	}
	if pod.Spec.NodeName == "" {
		return o, nil
	}
	r.picker.Placed(s.UID)
	o.Events = r.observeEvents(ctx, pod)
	node := &corev1.Node{}
	err = r.Client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		o.Node = node
		r.missing.forget(node.Name)
	case apierrors.IsNotFound(err):
		o.NodeMissingSince = r.missing.since(pod.Spec.NodeName, r.Now())
	default:
		return o, fmt.Errorf("read Node %s: %w", pod.Spec.NodeName, err)
	}
	return o, nil
}

// maxEvents bounds how many events of a Pod are read.
const maxEvents = 20

// observeEvents reads the events of a Pod whose containers haven't been made for a minute: only
// they tell of a volume that can't be mounted.
func (r *Reconciler) observeEvents(ctx context.Context, pod *corev1.Pod) []corev1.Event {
	if !slowstart.OnlyEventsTell(r.Now(), pod) {
		return nil
	}
	var list corev1.EventList
	err := r.Live.List(ctx, &list, client.InNamespace(pod.Namespace), client.Limit(maxEvents),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID))})
	if err != nil {
		return nil // it is looked at again in a minute
	}
	return list.Items
}

// absences remembers since when things have been missing that should be there.
type absences struct {
	mu    sync.Mutex
	first map[string]time.Time
}

// forgetAfter bounds for how long a missing thing is remembered, and so how many are.
const forgetAfter = 24 * time.Hour

// since is when something was first missed: now, if it wasn't missing before.
func (a *absences) since(what string, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.first[what]; !ok {
		for other, first := range a.first {
			if now.Sub(first) > forgetAfter {
				delete(a.first, other)
			}
		}
		a.first[what] = now
	}
	return a.first[what]
}

// forget is called for a thing that is there.
func (a *absences) forget(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.first, what)
}
