package elasticservice

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

const (
	// askSoon and askSeldom are how far apart a woken target's controllers are
	// asked whether pods from before the sleep stay, and askTime bounds one look.
	askSoon   = 100 * time.Millisecond
	askSeldom = time.Second
	askTime   = 2 * time.Second
	// askPods is how many pods are asked about in one pass.
	askPods = 16
	// maxUnsettled is how many pods the status names, see v1alpha1.ElasticServiceStatus.
	maxUnsettled = 1024
	// untoldTime is how long such pods get nobody where the controllers don't tell.
	untoldTime = time.Minute
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
	// next is when to ask again, and waits what the last answer was.
	next  time.Time
	waits error
	// flownAt is until when the write that put it to sleep may still be done.
	flownAt time.Time
}

// sleepMemory is the last sleep whose status this process wrote, which the cache may not
// have yet: when it began, and the pods that were there.
type sleepMemory struct {
	began metav1.MicroTime
	pods  []types.UID
}

// wrote takes in a status that was written.
func (m *sleepMemory) wrote(s *v1alpha1.ElasticServiceStatus) {
	if s.Phase == v1alpha1.PhaseAsleep && s.LastSleepTime != nil {
		*m = sleepMemory{*s.LastSleepTime, s.PodsBeforeSleep}
	}
}

// podsOf are those before the last sleep, of which it isn't known whether they stay.
func (m *sleepMemory) podsOf(s *v1alpha1.ElasticServiceStatus) []types.UID {
	if !m.began.IsZero() && !m.began.Equal(s.LastSleepTime) {
		return slices.Concat(m.pods, s.PodsBeforeSleep)
	}
	*m = sleepMemory{}
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
	if len(pods) == 0 {
		m.settling = settling{flownAt: m.settling.flownAt}
		return
	}
	s := &m.settling
	if s.since.IsZero() {
		s.since = now
	}
	if !now.Before(s.next) {
		var stay []types.UID
		stay, s.waits = r.settled(ctx, now, es, pods, s, o.scale.err)
		for _, uid := range stay {
			delete(o.unsettled.uids, uid)
		}
		// In turn: some wait for what others have.
		s.next = now.Add(min(max(now.Sub(s.since)/10, askSoon), askSeldom))
		pods = o.unsettled.still(o.sources)
	}
	if len(pods) == 0 {
		m.settling = settling{}
		return
	}
	o.unsettled.next = s.next
	if now.Sub(s.since) >= tellAfter {
		o.unsettled.waits = s.waits
	}
}

// settled asks which pods stay.
func (r *Reconciler) settled(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, pods []target.PodKey, s *settling, scaleErr error) (stay []types.UID, waits error) {
	if now.Before(s.flownAt) {
		return nil, errors.New("the write that put the target to sleep may be under way still")
	}
	err := scaleErr
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		// Another part of them each time.
		at := int(now.Sub(s.since)/askSoon) * askPods % len(pods)
		pods = slices.Concat(pods[at:], pods[:at])
		stay, err = r.Scaler.Settled(ctx, refOf(es), pods[:min(len(pods), askPods)])
	}
	if now.Sub(s.since) >= untoldTime && (scaleErr != nil || errors.Is(err, target.ErrUntold)) {
		for _, pod := range pods {
			stay = append(stay, pod.UID)
		}
	}
	return stay, err
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
