// Package target reads and writes the scale of whatever a scaleTargetRef names, and
// distinguishes the ways in which that fails. It knows no particular kind.
package target

import (
	"context"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Errors that a user can fix. Each is wrapped in a sentence.
var (
	// ErrNotFound means that there is no such object or kind.
	ErrNotFound = errors.New("not found")
	// ErrNotScalable means that the object has no scale subresource.
	ErrNotScalable = errors.New("no scale subresource")
	// ErrClusterScoped means that the object belongs to no namespace: anybody who may write in
	// one namespace could scale it for everybody.
	ErrClusterScoped = errors.New("no object of a namespace")
	// ErrForbidden means that the operator has no right to the target's scale.
	ErrForbidden = errors.New("forbidden")
)

// Ref is a target: what a scaleTargetRef names in a namespace.
type Ref struct {
	v1alpha1.ScaleTargetRef
	Namespace string
}

// Of is an ElasticService's target.
func Of(es *v1alpha1.ElasticService) Ref {
	return Ref{ScaleTargetRef: es.Spec.ScaleTargetRef, Namespace: es.Namespace}
}

// String formats the target for people: Deployment games/lobby.
func (r Ref) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// Scaler reads and writes scales through the API server, without a cache: its results are true
// at the time of the call.
type Scaler struct {
	client client.Client
	live   client.Reader
}

// NewScaler makes a Scaler. Live reads from the API server what the client reads from a cache.
func NewScaler(c client.Client, live client.Reader) *Scaler { return &Scaler{client: c, live: live} }

// scale is the target without anything but its name, and an empty Scale to call its subresource
// with; an error if the target's kind is cluster-scoped.
func (s *Scaler) scale(ref Ref) (object, scale *unstructured.Unstructured, err error) {
	object = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": ref.APIVersion, "kind": ref.Kind,
		"metadata": map[string]any{"namespace": ref.Namespace, "name": ref.Name},
	}}
	is, err := s.client.IsObjectNamespaced(object)
	switch {
	case err != nil:
		return nil, nil, explain(ref, "read", err)
	case !is:
		return nil, nil, &failure{fmt.Sprintf("%s %s belongs to no namespace, and only objects of the ElasticService's own namespace are scaled", ref.Kind, ref.Name), ErrClusterScoped}
	}
	scale = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale"}}
	return object, scale, nil
}

// Get reads the scale.
func (s *Scaler) Get(ctx context.Context, ref Ref) (*autoscalingv1.Scale, error) {
	object, u, err := s.scale(ref)
	if err != nil {
		return nil, err
	}
	if err := s.client.SubResource("scale").Get(ctx, object, u); err != nil {
		if apierrors.IsInternalError(err) && ref.isGameType() {
			return s.getGameType(ctx, ref)
		}
		return nil, explain(ref, "read", err)
	}
	scale := &autoscalingv1.Scale{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, scale); err != nil {
		return nil, fmt.Errorf("decode the scale of %s: %w", ref, err)
	}
	if scale.Status.Selector == "" && ref.is(v1alpha1.GroupVersion.Group, "Server") {
		scale.Status.Selector = wellknown.ServerLabel + "=" + ref.Name // which one in a Fleet doesn't say
	}
	return scale, nil
}

// Set writes replicas into the scale that Get returned. It fails with a conflict if somebody
// has changed the target in between.
func (s *Scaler) Set(ctx context.Context, ref Ref, scale *autoscalingv1.Scale, replicas int32) error {
	object, u, err := s.scale(ref)
	if err != nil {
		return err
	}
	u.SetName(scale.Name)
	u.SetNamespace(scale.Namespace)
	u.SetUID(scale.UID)
	u.SetResourceVersion(scale.ResourceVersion)
	if err := unstructured.SetNestedField(u.Object, int64(replicas), "spec", "replicas"); err != nil {
		return fmt.Errorf("build the scale of %s: %w", ref, err)
	}
	if err := s.client.SubResource("scale").Update(ctx, object, client.WithSubResourceBody(u)); err != nil {
		return explain(ref, "write", err)
	}
	return nil
}

// Replicas is how many replicas a wake wants.
type Replicas struct {
	// AtLeast is for a target that has replicas.
	AtLeast int32
	// FromZero is for a target at zero. AsBefore is set where nobody asked for that number: it is
	// how many there were before the sleep.
	FromZero int32
	AsBefore bool
	// Asleep is set where it should be at zero: one call then does what else takes two.
	Asleep bool
}

// Wanted is how many replicas a wake of an ElasticService asks for. A Server has one at most.
func Wanted(es *v1alpha1.ElasticService) Replicas {
	switch {
	case Of(es).is(v1alpha1.GroupVersion.Group, "Server"):
		return Replicas{AtLeast: 1, FromZero: 1}
	case es.Spec.MinReplicas != nil:
		return Replicas{AtLeast: *es.Spec.MinReplicas, FromZero: *es.Spec.MinReplicas}
	}
	return Replicas{AtLeast: 1, FromZero: max(es.Status.ReplicasBeforeSleep, 1), AsBefore: true}
}

// Raised is what a target had before, and has after a wake.
type Raised struct {
	Before, After int32
	// Version is the resourceVersion that it had before.
	Version string
}

// RaiseTo scales the target up to the wanted replicas, never down. It retries after a conflict,
// since another wake may have been faster.
func (s *Scaler) RaiseTo(ctx context.Context, ref Ref, want Replicas) (Raised, error) {
	if want.Asleep && want.FromZero > 0 && s.raiseFromZero(ctx, ref, want.FromZero) {
		return Raised{After: want.FromZero}, nil
	}
	for {
		scale, err := s.Get(ctx, ref)
		if err != nil {
			return Raised{}, err
		}
		is := Raised{Before: scale.Spec.Replicas, After: scale.Spec.Replicas, Version: scale.ResourceVersion}
		replicas := want.AtLeast
		if is.Before == 0 {
			replicas = want.FromZero
		}
		if is.Before >= replicas {
			return is, nil
		}
		err = s.Set(ctx, ref, scale, replicas)
		if err == nil {
			is.After = replicas
			return is, nil
		}
		if !apierrors.IsConflict(err) || ctx.Err() != nil {
			return is, err
		}
	}
}

// raiseFromZero scales a target up that is at zero, and reports whether it did. The API server makes
// sure of the zero, which a Scale doesn't say. Of what else goes wrong those calls tell that are made
// then: the operator may be allowed to update a scale, and not to patch it.
func (s *Scaler) raiseFromZero(ctx context.Context, ref Ref, replicas int32) bool {
	object, u, err := s.scale(ref)
	if err != nil {
		return false
	}
	body := fmt.Appendf(nil, `[{"op":"test","path":"/spec","value":{}},{"op":"add","path":"/spec/replicas","value":%d}]`, replicas)
	return s.client.SubResource("scale").Patch(ctx, object, client.RawPatch(types.JSONPatchType, body), client.WithSubResourceBody(u)) == nil
}

// Template is what a target's spec says beyond its scale. Its pods are up by their readiness probe, if the pod
// template has one where the well-known kinds have it. A target without a template there counts as having no
// probe. Servers always have one, that of their sidecar.
func (s *Scaler) Template(ctx context.Context, ref Ref) (Workload, error) {
	if ref.HasServers() {
		return Workload{Readiness: v1alpha1.PodReadinessProbe}, nil
	}
	u, _, err := s.scale(ref)
	if err != nil {
		return Workload{}, err
	}
	if err := s.client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, u); err != nil {
		return Workload{}, explain(ref, "read", err)
	}
	return Workload{LosesDisks: losesDisksOf(u), Readiness: readinessOf(u)}, nil
}

// Same reports whether two references name the same object, whatever version of its kind they
// name.
func Same(a, b v1alpha1.ScaleTargetRef) bool {
	kind := func(r v1alpha1.ScaleTargetRef) schema.GroupKind {
		return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).GroupKind()
	}
	return a.Name == b.Name && kind(a) == kind(b)
}

// ofDormouse reports whether its kind is one of Dormouse's own.
func (r Ref) ofDormouse() bool {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group == v1alpha1.GroupVersion.Group
}

// HasServers reports whether the target is a Server, a Fleet or a GameType.
func (r Ref) HasServers() bool {
	return (r.Kind == "Server" || r.Kind == "Fleet" || r.Kind == "GameType") && r.ofDormouse()
}

// failure wraps one of this package's errors in a sentence.
type failure struct {
	sentence string
	kind     error
}

// Error implements error.
func (f *failure) Error() string { return f.sentence }

// Unwrap returns the wrapped error.
func (f *failure) Unwrap() error { return f.kind }

// explain turns an error of the API server that a user can fix into a sentence around one of
// this package's errors.
func explain(ref Ref, verb string, err error) error {
	switch {
	case meta.IsNoMatchError(err):
		return &failure{fmt.Sprintf("the API server knows no kind %s in %s", ref.Kind, ref.APIVersion), ErrNotFound}
	case apierrors.IsNotFound(err) && isUnknownPath(err):
		return &failure{fmt.Sprintf("%s can't be scaled, because its kind has no scale subresource", ref), ErrNotScalable}
	case apierrors.IsNotFound(err):
		return &failure{fmt.Sprintf("there is no %s", ref), ErrNotFound}
	case apierrors.IsForbidden(err):
		return &failure{fmt.Sprintf("may not %s the scale of %s (%s)", verb, ref, err), ErrForbidden}
	default:
		return fmt.Errorf("%s the scale of %s: %w", verb, ref, err)
	}
}

// isUnknownPath reports whether a 404 comes from the API server's router and not from a missing
// object: only the latter is a Status document.
func isUnknownPath(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	if details == nil {
		return true
	}
	for _, c := range details.Causes {
		if c.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return details.Name == ""
}
