package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/target"
)

// fieldOwner has the two annotations of a pause, and nothing else.
const fieldOwner = "dormouse-autoscaler"

// callTime bounds a call to the API server. Admission webhooks, of which KEDA has one, may take
// longer, and players wait for the pass.
const callTime = time.Second

// Autoscalers reads the autoscalers that ElasticServices name, and pauses those of KEDA.
type Autoscalers struct {
	client client.Client
	watch  *watch
}

// New makes Autoscalers for the namespaces; none: for all. The manager runs their watch.
func New(mgr ctrl.Manager, namespaces map[string]cache.Config) (*Autoscalers, error) {
	w, err := newWatch(mgr, namespaces)
	if err != nil {
		return nil, err
	}
	return &Autoscalers{client: mgr.GetClient(), watch: w}, nil
}

// Source asks for passes of the objects that find returns for a ScaledObject that has changed. Those of
// what was there when the watch began are asked for by inTurn: there may be many.
func (a *Autoscalers) Source(find func(context.Context, client.ObjectKey) []reconcile.Request, inTurn func(...reconcile.Request)) source.Source {
	return a.watch.source(find, inTurn)
}

// See reads what an ElasticService names as its autoscaler. Whatever prevents that is a Problem.
func (a *Autoscalers) See(ctx context.Context, es *v1alpha1.ElasticService) Seen {
	named := es.Spec.Autoscaler
	if named == nil {
		return Seen{}
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	key := client.ObjectKey{Namespace: es.Namespace, Name: named.Name}
	if named.Kind == v1alpha1.AutoscalerHPA {
		hpa := &autoscalingv2.HorizontalPodAutoscaler{}
		if err := a.client.Get(ctx, key, hpa); err != nil {
			return Seen{Kind: named.Kind, Name: named.Name, Problem: explain(named, key, err)}
		}
		return seeHPA(es, hpa)
	}
	u, watched, err := a.watch.get(ctx, key)
	if err != nil {
		return Seen{Kind: named.Kind, Name: named.Name, Untold: !watched, Problem: explain(named, key, err)}
	}
	seen := seeScaledObject(es, decode(u))
	seen.Untold = !watched
	return seen
}

// Wanted is how many replicas a wake of an ElasticService asks for.
func (a *Autoscalers) Wanted(ctx context.Context, es *v1alpha1.ElasticService) target.Replicas {
	return a.See(ctx, es).Bound(target.Wanted(es))
}

// Pause pauses the ScaledObject that was seen. The API server refuses that if somebody else has
// set the annotation to another value meanwhile.
func (a *Autoscalers) Pause(ctx context.Context, es *v1alpha1.ElasticService, seen Seen) *obstacle.Obstacle {
	_, err := a.apply(ctx, client.ObjectKey{Namespace: es.Namespace, Name: seen.Name}, seen.of.uid, map[string]string{
		pausedAnnotation: "true", wellknown.PausedByAnnotation: string(es.UID),
	})
	if err == nil {
		return nil
	}
	return unpausable("pause", seen.Name, err)
}

// Unpause takes Dormouse's pause from the ScaledObject that was seen.
func (a *Autoscalers) Unpause(ctx context.Context, es *v1alpha1.ElasticService, seen Seen) *obstacle.Obstacle {
	now, err := a.apply(ctx, client.ObjectKey{Namespace: es.Namespace, Name: seen.Name}, seen.of.uid, nil)
	if _, paused := now.GetAnnotations()[wellknown.PausedByAnnotation]; err == nil && paused {
		err = a.remove(ctx, now)
	}
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return unpausable("end the pause of", seen.Name, err)
}

// Release takes the pause that an ElasticService has made from the ScaledObject that its status
// names, whatever its spec names. One that is gone has none.
func (a *Autoscalers) Release(ctx context.Context, es *v1alpha1.ElasticService) *obstacle.Obstacle {
	if es.Status.PausedScaledObject == "" {
		return nil
	}
	key := client.ObjectKey{Namespace: es.Namespace, Name: es.Status.PausedScaledObject}
	reading, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	u, err := a.watch.read(reading, key)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil
	case err != nil:
		return unpausable("end the pause of", key.Name, err)
	}
	so := decode(u)
	if so.pausedBy != string(es.UID) {
		return nil
	}
	return a.Unpause(ctx, es, Seen{Name: so.name, of: so})
}

// remove removes a pause of Dormouse's that somebody else has applied, as where a ScaledObject was brought from
// another cluster, or restored. It must not have changed since it was read.
func (a *Autoscalers) remove(ctx context.Context, so *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	body := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:null,%q:null}}}`, so.GetResourceVersion(), pausedAnnotation, wellknown.PausedByAnnotation)
	if err := a.client.Patch(ctx, so, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("remove the pause of ScaledObject %s: %w", client.ObjectKeyFromObject(so), err)
	}
	return nil
}

// apply applies the annotations, and takes away those that it applied before. It returns how the ScaledObject is then.
func (a *Autoscalers) apply(ctx context.Context, key client.ObjectKey, uid types.UID, annotations map[string]string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	u := newScaledObject(key)
	// Without it one that is gone would be made again.
	u.SetUID(uid)
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	if err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldOwner)); err != nil {
		return u, fmt.Errorf("apply the pause of ScaledObject %s: %w", key, err)
	}
	return u, nil
}

func unpausable(verb, name string, err error) *obstacle.Obstacle {
	if apierrors.IsForbidden(err) {
		return forbidden(verb, name, err)
	}
	return obstacle.New(reasons.AutoscalerUnpausable, "Can't %s ScaledObject %s (%s): change what refuses it; Dormouse tries again.", verb, name, refusal.Words(err))
}

func forbidden(verb, name string, err error) *obstacle.Obstacle {
	return obstacle.New(reasons.AutoscalerForbidden,
		"The operator may not %s ScaledObject %s (%s): install Dormouse with the component config/components/keda, or change what refuses it.", verb, name, refusal.Words(err))
}

// explain says why an autoscaler can't be read.
func explain(named *v1alpha1.Autoscaler, key client.ObjectKey, err error) *obstacle.Obstacle {
	what := "HorizontalPodAutoscaler"
	if named.Kind == v1alpha1.AutoscalerKEDA {
		what = scaledObjectKind.Kind
	}
	switch {
	case meta.IsNoMatchError(err):
		return obstacle.New(reasons.AutoscalerNotInstalled,
			"The API server knows no kind %s in %s: install KEDA, or remove spec.autoscaler.", what, scaledObjectKind.GroupVersion())
	case apierrors.IsNotFound(err):
		return obstacle.New(reasons.AutoscalerNotFound, "There is no %s %s in namespace %s: create it, or correct spec.autoscaler.", what, key.Name, key.Namespace)
	case apierrors.IsForbidden(err):
		return forbidden("read", key.Name, err)
	case errors.Is(err, context.DeadlineExceeded):
		return obstacle.New(reasons.AutoscalerUnreadable, "%s %s can't be read just now: the API server takes too long.", what, key.Name)
	}
	return obstacle.New(reasons.AutoscalerUnreadable, "%s %s can't be read just now (%s).", what, key.Name, refusal.Words(err))
}
