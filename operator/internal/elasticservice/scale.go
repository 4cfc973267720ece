package elasticservice

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/status"
	"dormouse.dev/dormouse/operator/internal/kindwatch"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/target"
)

// unwatchedRead is how often a target's pod template is read if the target's kind isn't
// watched, or the template could not be read.
const unwatchedRead = time.Minute

// selectorRead is how often a scale without a selector is read: one may come with the status, of
// which the watch tells nothing, and not each kind has any.
const selectorRead = 10 * time.Second

// version identifies a state of a target's spec. The zero version is that of a target that
// isn't there, or whose kind isn't watched.
type version struct {
	ref        target.Ref
	uid        types.UID
	generation int64
}

// scaleState is what was read of a target's spec, and of which version.
type scaleState struct {
	// of is the version that scale has at least; zero when scale must be read.
	of    version
	scale planner.Scale
	// read is when scale was read.
	read time.Time
	// scaleOnly is set once the target's scale could not be read though the target could: the next
	// pass finds out why.
	scaleOnly bool
	// template is the version of scale.Readiness and scale.LosesDisks.
	template     version
	templateRead time.Time
}

// observeScale reads the target's scale, unless the watch shows that its spec is the one that
// was read last: so a pass over thousands of services asks nothing. Of one that sleeps a new leader
// first believes a watch that shows it at zero, as later passes do: the API server needn't be asked for ten
// thousand Deployments. One that is shown with replicas is read: the watch may not have the sleep yet, which
// this pass would take for ended.
func (r *Reconciler) observeScale(ctx context.Context, ref target.Ref, asleep bool, m *scaleState) planner.Scale {
	// A scale that is read after the watch's version is of that version or a later one.
	v := version{ref: ref}
	var shown *target.Workload
	v.uid, v.generation, shown = r.Targets.Generation(ctx, ref)
	now := r.Now()
	// A Fleet that has just been made gets its selector a little later.
	unselected := m.scale.Selector == "" && (ref.HasServers() || now.Sub(m.read) >= selectorRead)
	if v.generation == 0 || m.of != v || unselected {
		var is target.Workload
		var err error
		if asleep && m.read.IsZero() && shown != nil && shown.Replicas == 0 {
			is = *shown
		} else if is, err = r.Scaler.See(ctx, ref, m.scaleOnly); err != nil {
			m.of = version{}
			return planner.Scale{Err: err}
		}
		m.of, m.read, m.scaleOnly = v, now, false
		m.scale.Replicas, m.scale.Selector = is.Replicas, is.Selector
		if is.Readiness != "" {
			m.scale.Readiness, m.scale.LosesDisks, m.template, m.templateRead = is.Readiness, is.LosesDisks, v, now
		}
	}
	sure := m.scale.Readiness != "" && v.generation != 0
	if m.template != v || !sure && now.Sub(m.templateRead) > unwatchedRead {
		r.observeTemplate(ctx, v, m)
	}
	return m.scale
}

// observeTemplate finds out what tells that the target's pods are up, and what becomes of their disks.
func (r *Reconciler) observeTemplate(ctx context.Context, v version, m *scaleState) {
	if m.template.ref != v.ref {
		m.scale.Readiness, m.scale.LosesDisks = "", false
	}
	if is, err := r.Scaler.Template(ctx, v.ref); err == nil {
		m.scale.Readiness, m.scale.LosesDisks = is.Readiness, is.LosesDisks
	} // else the previous value is the best there is
	m.template, m.templateRead = v, r.Now()
}

// Targets tells when targets' specs change; it is a targetwatch.Watch.
type Targets interface {
	// Generation is that of a target's spec, or 0 where the target isn't watched, and what that spec says,
	// or nil where the watch doesn't show that.
	Generation(ctx context.Context, ref target.Ref) (uid types.UID, generation int64, says *target.Workload)
	// Source has changes handled.
	Source(handle func(context.Context, kindwatch.Change, kindwatch.Queue)) source.Source
}

// raisedCheck is when to look at a target again that was scaled up: the change of one whose kind
// isn't watched shows nowhere before its pods do.
const raisedCheck = time.Second

// raiseTime bounds a wake, as it bounds that for a client. The pass goes on to write the endpoints.
const raiseTime = 3 * time.Second

// WakeScaler scales targets up.
type WakeScaler interface {
	RaiseTo(ctx context.Context, ref target.Ref, want target.Replicas) (target.Raised, error)
}

// raise wakes the service because something keeps it awake. Where that fails it is noted as a
// flaw, and tried again later: clients need the endpoints meanwhile.
func (r *Reconciler) raise(ctx context.Context, p *pass) {
	ctx, cancel := context.WithTimeout(ctx, raiseTime)
	defer cancel()
	at, by := r.Now(), p.plan.KeptAwake(p.es).By
	raised, err := r.WakeScaler.RaiseTo(ctx, target.Of(p.es), p.observed.Autoscaler.Bound(target.Wanted(p.es)))
	switch {
	case errors.Is(err, target.ErrForbidden):
		p.found.Note(obstacle.New(reasons.TargetForbidden, "%s keeps the service awake, and the operator %s: let it scale %s.",
			by, refusal.Words(err), target.Of(p.es)))
		return
	case refusal.Is(err), target.IsUserError(err):
		p.found.Note(obstacle.New(reasons.Refused, "%s keeps the service awake, and the target can't be scaled up (%s): change what refuses it.",
			by, refusal.Words(err)))
		return
	case err != nil:
		p.found.Note(obstacle.New(reasons.Refused, "%s keeps the service awake, and the target can't be scaled up just now (%s): Dormouse tries again.",
			by, refusal.Words(err)))
		return
	}
	p.state.scale.of = version{} // the next pass must read: the watch shows the write only later
	p.plan.RequeueAfter.AtMost(raisedCheck)
	if raised.After > raised.Before {
		p.raised = at
		kit.Emit(r.Events, p.es, status.Raised(p.es, p.plan, raised.Before, raised.After))
	}
}
