package elasticservice

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/kindwatch"
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
	// template is the version of scale.readiness.
	template     version
	templateRead time.Time
}

// observeScale reads the target's scale, unless the watch shows that its spec is the one that
// was read last: so a pass over thousands of services asks nothing.
func (r *Reconciler) observeScale(ctx context.Context, es *v1alpha1.ElasticService, m *scaleState) planner.Scale {
	ref := target.Of(es)
	v := r.targetVersion(ctx, ref)
	now := r.Now()
	// A Fleet that has just been made gets its selector a little later.
	unselected := m.scale.Selector == "" && (ref.HasServers() || now.Sub(m.read) >= selectorRead)
	if v.generation == 0 || m.of != v || unselected {
		scale, err := r.Scaler.Get(ctx, ref)
		if err != nil {
			m.of = version{}
			return planner.Scale{Err: err}
		}
		m.of, m.read = v, now
		m.scale.Replicas, m.scale.Selector = scale.Spec.Replicas, scale.Status.Selector
	}
	r.observeTemplate(ctx, ref, v, m)
	return m.scale
}

// observeTemplate finds out whether the target's pods have a readiness probe.
func (r *Reconciler) observeTemplate(ctx context.Context, ref target.Ref, v version, m *scaleState) {
	sure := m.scale.Readiness != "" && v.generation != 0
	now := r.Now()
	if m.template == v && (sure || now.Sub(m.templateRead) <= unwatchedRead) {
		return
	}
	if m.template.ref != ref {
		m.scale.Readiness = ""
	}
	probed, err := r.Scaler.HasReadinessProbe(ctx, ref)
	switch {
	case err != nil: // the previous value is the best there is
	case probed:
		m.scale.Readiness = v1alpha1.PodReadinessProbe
	default:
		m.scale.Readiness = v1alpha1.PodReadinessConnect
	}
	m.template, m.templateRead = v, now
}

// Targets tells when targets' specs change; it is a targetwatch.Watch.
type Targets interface {
	// Generation is that of a target's spec, or 0 where the target isn't watched.
	Generation(ctx context.Context, ref target.Ref) (types.UID, int64)
	// Source has changes handled.
	Source(handle func(context.Context, kindwatch.Change, kindwatch.Queue)) source.Source
}

// targetVersion is a target's version in the watch. A scale that is read after it is of that
// version or a later one.
func (r *Reconciler) targetVersion(ctx context.Context, ref target.Ref) version {
	uid, generation := r.Targets.Generation(ctx, ref)
	return version{ref: ref, uid: uid, generation: generation}
}
