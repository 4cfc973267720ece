package elasticservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

const (
	// askSoon and askSeldom are how far apart a woken target's controllers are asked
	// whether pods from before the sleep stay, and askTime bounds one look.
	askSoon   = 100 * time.Millisecond
	askSeldom = 10 * time.Second
	askTime   = 2 * time.Second
	// askPods is how many pods are asked about in one pass.
	askPods = 32
	// maxUnsettled is how many pods the status names, see v1alpha1.ElasticServiceStatus.
	maxUnsettled = 1024
	// untoldTime is how long such pods get nobody where the controllers don't tell.
	untoldTime = time.Minute
	// unsettledTime is how long they get nobody at most. A controller that has done nothing
	// for so long is no leader any more, and the next one begins with the scale of now.
	unsettledTime = 10 * time.Minute
	// flightTime is how long a write that was given up may still be done.
	flightTime = 2 * time.Second
	// tellAfter is from when on people are told.
	tellAfter = time.Second
)

// unsettled are the pods that a target had when it went to zero. A client who comes in
// that moment has it scaled up again, and then a pod looks as if it stayed that is
// about to be ended, for as long as its controllers take to see the zero: new clients
// must not be sent to it. Whether it stays, its controllers tell, see target.Settled.
// The status keeps them, so that resolvers and another leader know them, too.
type unsettled struct {
	uids map[types.UID]bool
	// next is when to ask again; zero where nothing is to be asked.
	next time.Time
	// waits says what is missing for pods that are left out to be taken back; nil
	// where there are none, or haven't been for long.
	waits error
}

// settling is what is remembered of a target that is awake with pods from before its
// sleep.
type settling struct {
	// since is since when it is; zero where it isn't.
	since time.Time
	// next is when to ask again, from is the pod to begin with, and waits what the last
	// answer was.
	next  time.Time
	from  int
	waits error
	// flownAt is until when the write that put it to sleep may still be done.
	flownAt time.Time
}

// sleepMemory is the last sleep whose status this process wrote, which the cache may not
// have yet: when it began, and the pods that were there.
type sleepMemory struct {
	began metav1.MicroTime
	pods  []types.UID
	// scaled is the last sleep whose target this process knows to have been scaled to
	// zero, or not.
	scaled metav1.MicroTime
}

// wrote takes in a status that was written.
func (m *sleepMemory) wrote(s *v1alpha1.ElasticServiceStatus) {
	if s.Phase == v1alpha1.PhaseAsleep && s.LastSleepTime != nil {
		m.began, m.pods = *s.LastSleepTime, s.PodsBeforeSleep
	}
}

// podsOf are those before the last sleep, of which it isn't known whether they stay.
func (m *sleepMemory) podsOf(s *v1alpha1.ElasticServiceStatus) []types.UID {
	if !m.began.IsZero() && !m.began.Equal(s.LastSleepTime) {
		return slices.Concat(m.pods, s.PodsBeforeSleep)
	}
	m.began, m.pods = metav1.MicroTime{}, nil
	return s.PodsBeforeSleep
}

// observeUnsettled finds out which of the pods may be ended at any moment.
func (r *Reconciler) observeUnsettled(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, m *memory, o *observed) {
	if o.scale.err == nil && o.scale.replicas == 0 {
		m.settling = settling{}
		o.unsettled = unsettledAtZero(o.sources)
		if es.Status.Phase == v1alpha1.PhaseAsleep {
			o.unsettled.add(es.Status.PodsBeforeSleep...)
		}
		return
	}
	o.unsettled.add(m.lastSleep.podsOf(&es.Status)...)
	pods := o.unsettled.still(o.sources)
	s := &m.settling
	if len(pods) == 0 {
		*s = settling{flownAt: s.flownAt}
		return
	}
	if s.since.IsZero() {
		s.since = now
		if es.Status.AsleepTarget != nil && !m.lastSleep.scaled.Equal(es.Status.LastSleepTime) {
			s.flownAt = latest(s.flownAt, now.Add(flightTime)) // of another leader's
		}
	}
	if !now.Before(s.next) {
		stay := r.settled(ctx, now, es, pods, s, o.scale.err)
		for _, uid := range stay {
			delete(o.unsettled.uids, uid)
		}
		s.next = now.Add(min(max(now.Sub(s.since)/10, askSoon), askSeldom))
		if pods = o.unsettled.still(o.sources); len(pods) == 0 {
			*s = settling{}
			return
		}
		if len(stay) > 0 {
			s.next = now // others may have been told, too
		}
	}
	o.unsettled.next = s.next
	if now.Sub(s.since) >= tellAfter {
		o.unsettled.waits = s.waits
	}
}

// settled asks which pods stay.
func (r *Reconciler) settled(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, pods []target.PodKey, s *settling, scaleErr error) (stay []types.UID) {
	if now.Before(s.flownAt) {
		s.waits = errors.New("the write that put the target to sleep may be under way still")
		return nil
	}
	// Another part of them each time.
	from := s.from % len(pods)
	pods = slices.Concat(pods[from:], pods[:from])
	pods = pods[:min(len(pods), askPods)]
	s.from = from + len(pods)
	found := target.Settlement{Waits: scaleErr}
	switch {
	case scaleErr == nil:
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		found = r.Scaler.Settled(ctx, refOf(es), pods)
	case targetReason(scaleErr) != v1alpha1.ReasonTargetUnreadable:
		found.Untold = uidsOf(pods) // not that the API server is silent for a while
	}
	s.waits = found.Waits
	switch lasts := now.Sub(s.since); {
	case lasts >= unsettledTime:
		return uidsOf(pods)
	case lasts >= untoldTime:
		return slices.Concat(found.Stay, found.Untold)
	}
	return found.Stay
}

func uidsOf(pods []target.PodKey) []types.UID {
	uids := make([]types.UID, len(pods))
	for i := range pods {
		uids[i] = pods[i].UID
	}
	return uids
}

// observeZero reads the scale again where pods are there that nobody knew of at a target at
// zero: they may be a wake's, of which the watch tells later.
func (r *Reconciler) observeZero(ctx context.Context, es *v1alpha1.ElasticService, m *memory, o *observed) {
	if o.scale.err != nil || o.scale.replicas > 0 || es.Status.Phase != v1alpha1.PhaseAsleep {
		return
	}
	there := unsettledAtZero(o.sources).uids
	for _, uid := range es.Status.PodsBeforeSleep {
		delete(there, uid)
	}
	if len(there) > 0 {
		m.scale.of = version{}
		o.scale = r.observeScale(ctx, es, &m.scale)
	}
}

// addPods takes in all pods that the target has, live: a pod without an address is in no
// slice yet, and slices may be late.
func (r *Reconciler) addPods(ctx context.Context, es *v1alpha1.ElasticService, o *observed) error {
	selector, err := r.podSelectorOf(es, *o)
	if err != nil || selector.Empty() {
		return err
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := r.Live.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(maxUnsettled)); err != nil {
		return fmt.Errorf("list the pods of %s: %w", refOf(es), err)
	}
	for i := range list.Items {
		o.unsettled.add(list.Items[i].UID)
	}
	return nil
}

// unsettledAtZero are those of a target that is at zero. Pods that end already are among
// them: others may see that later.
func unsettledAtZero(all []discoveryv1.EndpointSlice) unsettled {
	var u unsettled
	for _, slice := range all {
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; e.TargetRef != nil {
				u.add(e.TargetRef.UID)
			}
		}
	}
	return u
}

// add takes in pods, as far as the status can name them.
func (u *unsettled) add(uids ...types.UID) {
	if u.uids == nil {
		u.uids = map[types.UID]bool{}
	}
	for _, uid := range uids {
		if len(u.uids) < maxUnsettled {
			u.uids[uid] = true
		}
	}
}

// still are those of them that are there and don't end.
func (u *unsettled) still(all []discoveryv1.EndpointSlice) []target.PodKey {
	found := map[target.PodKey]bool{}
	for _, slice := range all {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.TargetRef != nil && u.uids[e.TargetRef.UID] && (e.Conditions.Terminating == nil || !*e.Conditions.Terminating) {
				found[target.PodKey{Name: e.TargetRef.Name, UID: e.TargetRef.UID}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b target.PodKey) int { return cmp.Compare(a.Name, b.Name) })
}

// list is what the status says of them.
func (u *unsettled) list() []types.UID { return slices.Sorted(maps.Keys(u.uids)) }

// takesNobody says that an endpoint is not to get new clients, whatever its pod's
// readiness says.
func (o *observed) takesNobody(e *discoveryv1.Endpoint) bool {
	return e.TargetRef != nil && (o.draining[e.TargetRef.Name] || o.unsettled.uids[e.TargetRef.UID])
}
