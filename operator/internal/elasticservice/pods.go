package elasticservice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/times"
)

const (
	// minAskPeriod and maxAskPeriod are how far apart the controllers of a woken target are
	// asked whether pods from before the sleep stay, and askTime bounds one look.
	minAskPeriod = 100 * time.Millisecond
	maxAskPeriod = 10 * time.Second
	askTime      = 2 * time.Second
	// askPods is how many pods are asked about in one pass.
	askPods = 32
	// untoldTime is how long such pods get no clients where the controllers don't report that.
	untoldTime = time.Minute
	// unsettledTime is how long they get no clients at most. A controller that has done nothing
	// for so long is no leader any more, and the next one begins with the current scale.
	unsettledTime = 10 * time.Minute
	// flightTime is how long a write that was given up may still be applied.
	flightTime = 2 * time.Second
	// tellAfter is after how long the condition reports it.
	tellAfter = time.Second
)

// settling is the memory of a target that is awake with pods from before its sleep.
type settling struct {
	// since is since when that is so; zero where it isn't.
	since time.Time
	// next is when to ask again, from is the pod to begin with, and waits is the last answer.
	next  time.Time
	from  int
	waits error
	// flownAt is until when the write that put it to sleep may still be applied.
	flownAt time.Time
}

// sleepState is the last sleep that this process wrote into the status, which the cache may not
// have yet: when it began, and the pods that were there.
type sleepState struct {
	began metav1.MicroTime
	pods  []types.UID
	// scaled is the last sleep of which this process knows whether its target was scaled to
	// zero.
	scaled metav1.MicroTime
}

// wrote takes in the status that was written.
func (m *sleepState) wrote(s *v1alpha1.ElasticServiceStatus) {
	if s.Phase == v1alpha1.PhaseAsleep && s.LastSleepTime != nil {
		m.began, m.pods = *s.LastSleepTime, s.PodsBeforeSleep
	}
}

// observeUnsettled finds out which pods may be ended at any moment.
func (r *Reconciler) observeUnsettled(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, m *state, o *planner.Observed) {
	if o.Scale.Err == nil && o.Scale.Replicas == 0 {
		m.settling = nil
		o.Unsettled = planner.UnsettledAtZero(o.Sources)
		if es.Status.Phase == v1alpha1.PhaseAsleep {
			o.Unsettled.Add(es.Status.PodsBeforeSleep...)
		}
		return
	}
	last := &m.lastSleep
	if m.written == nil && last.began.Equal(es.Status.LastSleepTime) {
		last.began, last.pods = metav1.MicroTime{}, nil // the cache has it by now
	}
	before := slices.Concat(last.pods, es.Status.PodsBeforeSleep)
	var pods []target.PodKey
	if len(before) > 0 {
		o.Unsettled.Add(before...)
		pods = o.Unsettled.Still(o.Sources)
	}
	if len(pods) == 0 {
		if s := m.settling; s != nil {
			*s = settling{flownAt: s.flownAt}
		}
		return
	}
	s := made(&m.settling)
	if s.since.IsZero() {
		s.since = now
		if es.Status.AsleepTarget != nil && !last.scaled.Equal(es.Status.LastSleepTime) {
			s.flownAt = times.Latest(s.flownAt, now.Add(flightTime)) // the write may be another leader's
		}
	}
	if !now.Before(s.next) {
		stay := r.settled(ctx, now, es, pods, s, o.Scale.Err)
		for _, uid := range stay {
			delete(o.Unsettled.UIDs, uid)
		}
		s.next = now.Add(min(max(now.Sub(s.since)/10, minAskPeriod), maxAskPeriod))
		if pods = o.Unsettled.Still(o.Sources); len(pods) == 0 {
			m.settling = nil
			return
		}
		if len(stay) > 0 {
			s.next = now // others may have reported, too
		}
	}
	o.Unsettled.Next = s.next
	if now.Sub(s.since) >= tellAfter {
		o.Unsettled.Waits = s.waits
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
		found = r.Scaler.Settled(ctx, target.Of(es), pods)
	case target.Reason(scaleErr) != reasons.TargetUnreadable:
		found.Untold = uidsOf(pods) // an API server that doesn't answer for a while doesn't count
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

// observeZero reads the scale of a sleeping target at zero again where unexpected pods are there: they
// may be from a wake that the watch shows later.
func (r *Reconciler) observeZero(ctx context.Context, es *v1alpha1.ElasticService, m *state, o *planner.Observed) {
	there := planner.UnsettledAtZero(o.Sources).UIDs
	for _, uid := range es.Status.PodsBeforeSleep {
		delete(there, uid)
	}
	if len(there) > 0 {
		m.scale.of = version{}
		o.Scale = r.observeScale(ctx, target.Of(es), true, &m.scale)
	}
}

// addPods adds all pods of the target, read live: a pod without an address is in no slice yet,
// and slices may be late.
func (r *Reconciler) addPods(ctx context.Context, es *v1alpha1.ElasticService, o planner.Observed, to *planner.Unsettled) error {
	selector, err := r.podSelectorOf(es, o)
	if err != nil || selector.Empty() {
		return err
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := r.Live.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(planner.MaxUnsettled)); err != nil {
		return fmt.Errorf("list the pods of %s: %w", target.Of(es), err)
	}
	for i := range list.Items {
		to.Add(list.Items[i].UID)
	}
	return nil
}

// diagnosePods bounds how many of the target's pods are read.
const diagnosePods = 20

// podsOf reads some of the target's pods, live, and reports whether they are all of them.
func (r *Reconciler) podsOf(ctx context.Context, es *v1alpha1.ElasticService, o planner.Observed) (pods []corev1.Pod, all bool, err error) {
	selector, err := r.podSelectorOf(es, o)
	if err != nil || selector.Empty() {
		return nil, false, err
	}
	var list corev1.PodList
	if err := r.Live.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(diagnosePods)); err != nil {
		return nil, false, fmt.Errorf("list the pods of %s: %w", target.Of(es), err)
	}
	return list.Items, len(list.Items) < diagnosePods, nil
}

// podSelectorOf selects the target's pods; empty where the selector isn't known.
func (r *Reconciler) podSelectorOf(es *v1alpha1.ElasticService, o planner.Observed) (labels.Selector, error) {
	if o.Scale.Selector == "" {
		return labels.SelectorFromSet(o.Service.Spec.Selector), nil
	}
	selector, err := labels.Parse(o.Scale.Selector)
	if err != nil {
		return labels.Nothing(), fmt.Errorf("read the selector of %s: %w", target.Of(es), err)
	}
	return selector, nil
}
