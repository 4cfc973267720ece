package lookout

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/diagnosis"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/spec"
)

const (
	// diagnoseAfter is how long a service has no server before a look is taken: a normal wake
	// costs no call.
	diagnoseAfter = 5 * time.Second
	// diagnoseAtMost is how far apart looks are at most.
	diagnoseAtMost = 30 * time.Second
	// repeatAfter is how long a server must have been up before the same reason makes an event
	// again: one that crashes a second after each start doesn't each time.
	repeatAfter = time.Minute
	// diagnoseTime bounds one look.
	diagnoseTime = 2 * time.Second
)

// History is the memory of a service without a server.
type History struct {
	// since is since when a server is wanted and none takes clients; zero when one does.
	since time.Time
	// upSince is since when one does, and waitingSince since when clients have waited though a
	// server is up.
	upSince, waitingSince time.Time
	// next is when to look again, and apart how far apart the looks are.
	next  time.Time
	apart time.Duration
	// generation is the target's at the last look: a new one is looked at sooner.
	generation int64
	// Found is what the last look found.
	Found *diagnosis.Finding
	// Emitted is the reason of the last event.
	Emitted string
}

// Case is a pass's view of a service that may have no server.
type Case struct {
	Now      time.Time
	Service  *v1alpha1.ElasticService
	Observed planner.Observed
	// Queued is how many clients wait, and generation is the target's.
	Queued     int32
	Generation int64
	// Look reads why this service has had no server since then. It may take long.
	Look func(ctx context.Context, es *v1alpha1.ElasticService, since time.Time) (diagnosis.Finding, error)
}

// Diagnose finds out why a service that wakes has no server, and when to look again. Reads over
// the network happen beside the passes.
func (l *Lookouts) Diagnose(ctx context.Context, d *History, c Case) (cause *diagnosis.Finding, requeueAfter time.Duration) {
	es, o, now := c.Service, c.Observed, c.Now
	up := o.Up > 0
	switch {
	case o.Scale.Err != nil, o.Service == nil, !es.DeletionTimestamp.IsZero():
		return nil, 0
	case o.Scale.Replicas == 0:
		l.Reset(d, es.UID)
		return nil, 0
	case up && c.Queued > 0:
		return d.notTaken(now, es, o)
	case up:
		if d.upSince.IsZero() {
			d.upSince = now
		}
		d.since, d.waitingSince, d.Found = time.Time{}, time.Time{}, nil
		l.Forget(es.UID)
		return nil, 0
	}
	d.waitingSince = time.Time{}
	d.begin(now, es, c.Generation)
	l.takeLook(ctx, es.UID, d)
	if left := d.next.Sub(now); left > 0 {
		return d.Found, left
	}
	d.apart = min(max(2*d.apart, diagnoseAfter), diagnoseAtMost)
	d.next = now.Add(d.apart)
	asked, since := es.DeepCopy(), d.since // the pass goes on with both
	l.start(ctx, client.ObjectKeyFromObject(es), es.UID, func(ctx context.Context) (diagnosis.Finding, error) {
		return c.Look(ctx, asked, since)
	})
	l.takeLook(ctx, es.UID, d)
	return d.Found, d.apart
}

// Reset begins a service's history anew, once it sleeps.
func (l *Lookouts) Reset(d *History, uid types.UID) {
	*d = History{}
	l.Forget(uid)
}

// Outdate takes in that a container runs that didn't at the last look, and has the next one come as soon as that
// of a new wake. The finding stays until then, but for that nobody can be on a server: one that crashes once more
// wasn't well in between.
func (l *Lookouts) Outdate(d *History, uid types.UID, now time.Time) {
	if d.Found != nil {
		found := *d.Found // the pass may still have it
		found.Nobody = false
		d.Found = &found
	}
	d.apart, d.next = 0, now.Add(diagnoseAfter)
	l.Forget(uid)
}

// takeLook takes in a look's finding. Until then, and where it found nothing, the previous
// finding stays.
func (l *Lookouts) takeLook(ctx context.Context, uid types.UID, d *History) {
	switch found := l.take(uid); {
	case found == nil:
	case found.err != nil:
		ctrl.LoggerFrom(ctx).Error(found.err, "find out why no server is up")
	default:
		d.Found = &found.finding
	}
}

// begin notes since when no server is up, and when to look.
func (d *History) begin(now time.Time, es *v1alpha1.ElasticService, generation int64) {
	if !d.upSince.IsZero() {
		if now.Sub(d.upSince) >= repeatAfter {
			d.Emitted = ""
		}
		d.upSince = time.Time{}
	}
	if d.since.IsZero() {
		d.since = now
		// A new leader continues from the previous one's status.
		if es.Status.Phase == v1alpha1.PhaseWaking {
			d.since = spec.Of(es).PhaseSince
			if c := meta.FindStatusCondition(es.Status.Conditions, conditions.ServerUp); c != nil && c.Status == metav1.ConditionFalse {
				d.Found = &diagnosis.Finding{Reason: c.Reason, Sentence: c.Message, Wrong: true}
			}
		}
		d.apart, d.next, d.generation = 0, d.since.Add(diagnoseAfter), generation
	}
	if d.generation != generation {
		d.generation, d.apart = generation, 0
		if next := now.Add(diagnoseAfter); next.Before(d.next) {
			d.next = next
		}
	}
}

// notTaken is for servers that are up according to Kubernetes while clients go on waiting: they
// are full, or nothing listens on their port. The previous finding stays until then: a server
// that crashes once more wasn't well in between.
func (d *History) notTaken(now time.Time, es *v1alpha1.ElasticService, o planner.Observed) (cause *diagnosis.Finding, requeueAfter time.Duration) {
	if d.waitingSince.IsZero() {
		d.waitingSince = now
	}
	if now.Sub(d.waitingSince) < diagnosis.Patience {
		return d.Found, time.Second
	}
	t := diagnosis.Target{Kind: es.Spec.ScaleTargetRef.Kind, Name: es.Spec.ScaleTargetRef.Name}
	found := diagnosis.NotListening(t, d.waitingSince)
	if spec.Of(es).Handoff == v1alpha1.HandoffNever && endpoints.AllFull(o.Servers) {
		found = diagnosis.Full(t, d.waitingSince)
	}
	d.Found = &found
	return d.Found, diagnoseAfter
}

// Events are the events about a new cause. They are emitted after the status is written.
func (d *History) Events(before, es *v1alpha1.ElasticService, cause *diagnosis.Finding) []kit.Notice {
	if cause == nil || !cause.Wrong || d.Emitted == cause.Reason {
		return nil
	}
	d.Emitted = cause.Reason
	was := meta.FindStatusCondition(before.Status.Conditions, conditions.ServerUp)
	is := meta.FindStatusCondition(es.Status.Conditions, conditions.ServerUp)
	if is == nil || is.Status != metav1.ConditionFalse || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return nil // another leader has emitted it
	}
	return []kit.Notice{kit.Warning(cause.Reason, "Wake", "%s", cause.Sentence)}
}
