// Package targetwatch tells when the specs of ElasticServices' targets change, and which version
// of them is known. Targets of Dormouse's own kinds are watched anyway. Of each other kind there is
// one watch while ElasticServices name it as their target's; see package kindwatch. It is of metadata
// alone, but for Deployments and StatefulSets, of which it shows what their specs say. Where there is
// none the zero generation says so, and the scale must be read.
package targetwatch

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/kindwatch"
	"dormouse.dev/dormouse/operator/internal/slim"
	"dormouse.dev/dormouse/operator/internal/target"
)

// maxKinds bounds how many kinds are watched besides Kubernetes' own. Clusters have a few; whoever
// may make kinds with a scale, and so name them, shouldn't be able to fill the operator's memory.
const maxKinds = 32

// usual are the kinds that count towards no bound.
var usual = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
}

// Watch watches targets. A nil Watch knows nothing.
type Watch struct {
	cached client.Reader
	kinds  *kindwatch.Kinds
}

// New makes a Watch for the namespaces; none: for all. The manager runs it.
func New(mgr ctrl.Manager, namespaces map[string]cache.Config) (*Watch, error) {
	kinds, err := kindwatch.New(mgr, "targets", kindwatch.Options{
		Namespaces: namespaces,
		Scalable:   true,
		Typed:      typed,
		Transform:  versions,
		Differ:     differ,
		Most:       maxKinds,
		Usual:      usual,
		Grant:      grant,
		Namer:      &v1alpha1.ElasticService{},
		KindOf:     kindOf,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the watches of targets: %w", err)
	}
	return &Watch{cached: mgr.GetClient(), kinds: kinds}, nil
}

// Source tells a controller of targets whose spec changed.
func (w *Watch) Source(handle func(context.Context, kindwatch.Change, kindwatch.Queue)) source.Source {
	return &kindwatch.Source{Kinds: w.kinds, Handle: handle}
}

// Count is how many kinds are in each state.
func (w *Watch) Count() map[kindwatch.State]int { return w.kinds.Count() }

// Generation is what is known of a target: its UID, and its spec's generation or a later one; 0 where the
// target isn't there, or isn't watched. Says is what the spec of that generation says; nil: that isn't known.
func (w *Watch) Generation(ctx context.Context, ref target.Ref) (uid types.UID, generation int64, says *target.Workload) {
	if w == nil {
		return "", 0, nil
	}
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if ref.HasServers() {
		o := own(ref.Kind)
		// It is only read.
		if err := w.cached.Get(ctx, key, o, client.UnsafeDisableDeepCopy); err != nil {
			return "", 0, nil
		}
		return o.GetUID(), o.GetGeneration(), nil
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if slices.Contains(usual, kind) {
		o := &workload{}
		o.SetGroupVersionKind(kind)
		if watched, err := w.kinds.Get(ctx, key, o); !watched || err != nil {
			return "", 0, nil
		}
		return o.UID, o.Generation, o.says
	}
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind)
	if watched, err := w.kinds.Get(ctx, key, o); !watched || err != nil {
		return "", 0, nil
	}
	return o.UID, o.Generation, nil
}

// own is an object of one of Dormouse's own kinds.
func own(kind string) client.Object {
	switch kind {
	case "Fleet":
		return &v1alpha1.Fleet{}
	case "GameType":
		return &v1alpha1.GameType{}
	}
	return &v1alpha1.Server{}
}

// kindOf is the kind of an ElasticService's target, and none where that is watched anyway.
func kindOf(o client.Object) (kind schema.GroupVersionKind, ok bool) {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok || target.Of(es).HasServers() {
		return kind, false
	}
	return schema.FromAPIVersionAndKind(es.Spec.ScaleTargetRef.APIVersion, es.Spec.ScaleTargetRef.Kind), true
}

// versions keeps of a target what tells its versions apart, and what the spec says of a Deployment or a StatefulSet.
func versions(o any) (any, error) {
	switch is := o.(type) {
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: kept(is.TypeMeta), ObjectMeta: version(is.ObjectMeta)}, nil
	case *workload:
		return &workload{TypeMeta: kept(is.TypeMeta), ObjectMeta: version(is.ObjectMeta), says: is.speaks()}, nil
	}
	return o, nil
}

func kept(kind metav1.TypeMeta) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: slim.String(kind.Kind), APIVersion: slim.String(kind.APIVersion)}
}

func version(of metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: slim.String(of.Namespace), Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion, Generation: of.Generation,
	}
}

// differ reports whether a target's spec changed, or it is another one of its name.
func differ(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() || before.GetUID() != after.GetUID()
}

// grant says for the log how the operator may watch a kind.
func grant(kind schema.GroupVersionKind) string {
	if kind.Group == "argoproj.io" && kind.Kind == "Rollout" {
		return "the component config/components/argo-rollouts"
	}
	return "get, list and watch, as the component config/components/argo-rollouts does for its kind"
}
