package elasticservice

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
)

// +kubebuilder:rbac:groups="",resources=pods;events,verbs=list

const (
	// diagnoseAfter is how long a service has no server before anybody asks why:
	// one that wakes normally costs no call.
	diagnoseAfter = 5 * time.Second
	// diagnoseAtMost is how far apart the looks get.
	diagnoseAtMost = 30 * time.Second
	// diagnoseTime bounds one look.
	diagnoseTime = 2 * time.Second
	// diagnosePods and diagnoseEvents bound what one look reads.
	diagnosePods   = 20
	diagnoseEvents = 50
	// recovered is how long a server must have been up before the same reason is
	// news again: one that crashes a second after its start isn't each time.
	recovered = time.Minute
)

// diagnosisMemory is what is remembered of a service without a server.
type diagnosisMemory struct {
	// since is since when a server is wanted and none takes clients; zero when
	// one does.
	since time.Time
	// upSince is since when one does, and waitingSince since when clients have
	// waited though a server is up.
	upSince, waitingSince time.Time
	// next is when to look again, and apart how far apart the looks are.
	next  time.Time
	apart time.Duration
	// generation is the target's at the last look: a new one is looked at soon.
	generation int64
	// found is what the last look found.
	found *diagnosis.Finding
	// told is the reason of the last event.
	told string
}

// diagnose finds out why a service that wakes has no server. It runs after the
// endpoints are written, so that no player waits for it. Once a server is late it has
// the reading over the network done beside the passes.
func (r *Reconciler) diagnose(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, o observed, p *plan) *diagnosis.Finding {
	m := r.memoryOf(es)
	d := &m.diagnosis
	up := countUp(o.servers) > 0
	switch {
	case o.scale.err != nil, o.service == nil, !es.DeletionTimestamp.IsZero():
		return nil
	case o.scale.replicas == 0:
		*d = diagnosisMemory{}
		r.looks.forget(es.UID)
		return nil
	case up && p.queued > 0:
		return d.notTaken(now, es, o, p)
	case up:
		if d.upSince.IsZero() {
			d.upSince = now
		}
		d.since, d.waitingSince, d.found = time.Time{}, time.Time{}, nil
		r.looks.forget(es.UID)
		return nil
	}
	d.waitingSince = time.Time{}
	d.begin(now, es, m.scale.of.generation)
	r.takeLook(ctx, es, d)
	if left := d.next.Sub(now); left > 0 {
		p.again(left)
		return d.found
	}
	d.apart = min(max(2*d.apart, diagnoseAfter), diagnoseAtMost)
	d.next = now.Add(d.apart)
	p.again(d.apart)
	asked, since := es.DeepCopy(), d.since
	r.looks.start(ctx, client.ObjectKeyFromObject(es), es.UID, func(ctx context.Context) (diagnosis.Finding, error) {
		return r.look(ctx, now, asked, o, since)
	})
	r.takeLook(ctx, es, d)
	return d.found
}

// takeLook takes in what a look has found. What was known before is the best there is
// until then, and where it found nothing.
func (r *Reconciler) takeLook(ctx context.Context, es *v1alpha1.ElasticService, d *diagnosisMemory) {
	switch found := r.looks.take(es.UID); {
	case found == nil:
	case found.err != nil:
		ctrl.LoggerFrom(ctx).Error(found.err, "find out why no server is up")
	default:
		d.found = &found.finding
	}
}

// begin notes that no server is up, and when to look.
func (d *diagnosisMemory) begin(now time.Time, es *v1alpha1.ElasticService, generation int64) {
	if !d.upSince.IsZero() {
		if now.Sub(d.upSince) >= recovered {
			d.told = ""
		}
		d.upSince = time.Time{}
	}
	if d.since.IsZero() {
		d.since = now
		// A new leader goes by what the last one wrote.
		if es.Status.Phase == v1alpha1.PhaseWaking {
			d.since = phaseSince(es)
			if c := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionServerUp); c != nil && c.Status == metav1.ConditionFalse {
				d.found = &diagnosis.Finding{Reason: c.Reason, Sentence: c.Message, Wrong: true}
			}
		}
		d.apart, d.next, d.generation = 0, d.since.Add(diagnoseAfter), generation
	}
	if d.generation != generation {
		d.generation, d.apart = generation, 0
		if soon := now.Add(diagnoseAfter); soon.Before(d.next) {
			d.next = soon
		}
	}
}

// notTaken is for servers that are up as far as Kubernetes knows, while clients go
// on waiting: they are full, or nothing listens there. What was found before stays true until then: a
// server that crashes once more wasn't well in between.
func (d *diagnosisMemory) notTaken(now time.Time, es *v1alpha1.ElasticService, o observed, p *plan) *diagnosis.Finding {
	if d.waitingSince.IsZero() {
		d.waitingSince = now
	}
	if now.Sub(d.waitingSince) < diagnosis.Patience {
		p.again(time.Second)
		return d.found
	}
	p.again(diagnoseAfter)
	if handoff(es) == v1alpha1.HandoffNever && allFull(o.servers) {
		d.found = &diagnosis.Finding{
			Reason: v1alpha1.ReasonServersFull, Wrong: true,
			Sentence: fmt.Sprintf("Each Server of %s %s that is up has as many players as it may have, and clients have waited for room since %s: "+
				"give it more replicas, or its Servers a larger capacity.",
				es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name, d.waitingSince.UTC().Format(time.RFC3339)),
		}
		return d.found
	}
	d.found = &diagnosis.Finding{
		Reason: v1alpha1.ReasonServerNotListening, Wrong: true,
		Sentence: fmt.Sprintf("A pod of %s %s counts as up and clients have waited for it since %s, because nothing takes them on the Service's target ports: "+
			"look at the server's log and the Service's targetPort, and give the container a readinessProbe.",
			es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name, d.waitingSince.UTC().Format(time.RFC3339)),
	}
	return d.found
}

// look reads the target's pods, and what else may tell why none is up.
func (r *Reconciler) look(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, o observed, since time.Time) (diagnosis.Finding, error) {
	ref := refOf(es)
	in := diagnosis.Input{Target: diagnosis.Target{Kind: ref.Kind, Name: ref.Name}, Since: since}
	pods, all, err := r.podsOf(ctx, es, o)
	if err != nil {
		return diagnosis.Finding{}, err
	}
	in.Pods, in.All = pods, all
	if found := notSelected(es, o.service, pods); found != nil {
		return *found, nil
	}
	if len(pods) == 0 {
		// Kinds that the operator may not read are explained without.
		in.Target.UID, in.Target.Conditions, _ = r.Scaler.Status(ctx, ref)
	}
	found := diagnosis.Explain(now, in)
	if found.Ask == nil {
		return found, nil
	}
	var list corev1.EventList
	err = r.Live.List(ctx, &list, client.InNamespace(es.Namespace), client.Limit(diagnoseEvents), client.MatchingFieldsSelector{
		Selector: fields.SelectorFromSet(fields.Set{"involvedObject.uid": string(found.Ask.UID), "type": corev1.EventTypeWarning}),
	})
	if err != nil {
		return diagnosis.Finding{}, fmt.Errorf("list events of %s %s/%s: %w", found.Ask.Kind, es.Namespace, found.Ask.Name, err)
	}
	in.Events = append([]corev1.Event{}, list.Items...)
	return diagnosis.Explain(now, in), nil
}

// notSelected is for a Service whose selector fits none of the target's pods; nil: it does,
// or nobody can tell.
func notSelected(es *v1alpha1.ElasticService, svc *corev1.Service, pods []corev1.Pod) *diagnosis.Finding {
	if len(svc.Spec.Selector) == 0 || len(pods) == 0 {
		return nil
	}
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	for i := range pods {
		if selector.Matches(labels.Set(pods[i].Labels)) {
			return nil
		}
	}
	return &diagnosis.Finding{
		Reason: v1alpha1.ReasonSelectorFitsNoPod, Wrong: true,
		Sentence: fmt.Sprintf("The selector of Service %s (%s) fits none of the pods of %s %s, so clients wait though servers may be up: correct the selector, or remove it, "+
			"and Dormouse goes by the target's own.", svc.Name, selector, es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name),
	}
}

// podsOf reads some of the target's pods, live, and says whether they are all of them.
func (r *Reconciler) podsOf(ctx context.Context, es *v1alpha1.ElasticService, o observed) (pods []corev1.Pod, all bool, err error) {
	selector, err := r.podSelectorOf(es, o)
	if err != nil || selector.Empty() {
		return nil, false, err
	}
	var list corev1.PodList
	if err := r.Live.List(ctx, &list, client.InNamespace(es.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(diagnosePods)); err != nil {
		return nil, false, fmt.Errorf("list the pods of %s: %w", refOf(es), err)
	}
	return list.Items, len(list.Items) < diagnosePods, nil
}

// podSelectorOf finds the target's pods; empty where nobody knows which they are.
func (r *Reconciler) podSelectorOf(es *v1alpha1.ElasticService, o observed) (labels.Selector, error) {
	if o.scale.selector == "" {
		return labels.SelectorFromSet(o.service.Spec.Selector), nil
	}
	selector, err := labels.Parse(o.scale.selector)
	if err != nil {
		return labels.Nothing(), fmt.Errorf("read the selector of %s: %w", refOf(es), err)
	}
	return selector, nil
}

// events tell of a cause that is new, once it is written.
func (d *diagnosisMemory) events(before, es *v1alpha1.ElasticService, cause *diagnosis.Finding) []notice {
	if cause == nil || !cause.Wrong || d.told == cause.Reason {
		return nil
	}
	d.told = cause.Reason
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionServerUp)
	is := meta.FindStatusCondition(es.Status.Conditions, v1alpha1.ConditionServerUp)
	if is == nil || is.Status != metav1.ConditionFalse || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return nil // another leader has told
	}
	return []notice{{corev1.EventTypeWarning, cause.Reason, "Wake", cause.Sentence}}
}
