package target

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=get
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers;fleets;gametypes,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=get

// ErrUntold says that the controllers that run a target's pods don't tell whether they
// know of its scale.
var ErrUntold = errors.New("unknown whether the scale was taken in")

// maxOwners bounds how many owners lie between a pod and its target.
const maxOwners = 5

// PodKey names one pod.
type PodKey struct {
	Name string
	UID  types.UID
}

// Settled asks which pods outlive the scale that the target has now: they aren't being
// deleted, and each controller between them and the target has said that it knows the
// number of replicas that is wanted of it, and has no more pods than that. waits says
// what is missing where it isn't all of them; it wraps ErrUntold where nobody will tell.
func (s *Scaler) Settled(ctx context.Context, ref Ref, pods []PodKey) (stay []types.UID, waits error) {
	q := &inquiry{scaler: s, ref: ref, owners: map[types.UID]owner{}, found: map[types.UID]error{}}
	var errs []error
	for _, pod := range pods {
		stays, err := q.outlives(ctx, pod)
		switch {
		case err != nil:
			errs = append(errs, err)
		case stays:
			stay = append(stay, pod.UID)
		}
	}
	for _, err := range errs {
		if !errors.Is(err, ErrUntold) {
			return stay, err
		}
	}
	return stay, errors.Join(errs...)
}

// inquiry is one call of Settled. Each object is asked once.
type inquiry struct {
	scaler *Scaler
	ref    Ref
	owners map[types.UID]owner
	// found is what came of asking an owner; nil: it has told.
	found map[types.UID]error
}

// owner is the controller of a pod, or of such an owner.
type owner struct {
	ref Ref
	uid types.UID
	// by is its own controller; empty for the target.
	by types.UID
	// scales says that it is the first, from the pod on, with a number of replicas.
	scales bool
}

// outlives says whether a pod stays; an error says that this isn't known.
func (q *inquiry) outlives(ctx context.Context, pod PodKey) (bool, error) {
	is, err := q.pod(ctx, pod)
	if err != nil || is == nil {
		return false, err
	}
	by, err := q.climb(ctx, is)
	if err != nil {
		return false, err
	}
	if err := q.told(ctx, by); err != nil {
		return false, err
	}
	// Who was to be ended was told so before its controller said that it is done.
	is, err = q.pod(ctx, pod)
	return is != nil, err
}

// pod reads a pod; nil: it is gone or ends.
func (q *inquiry) pod(ctx context.Context, pod PodKey) (*unstructured.Unstructured, error) {
	ref := Ref{v1alpha1.ScaleTargetRef{APIVersion: "v1", Kind: "Pod", Name: pod.Name}, q.ref.Namespace}
	is, err := q.read(ctx, ref)
	if errors.Is(err, ErrNotFound) || err == nil && (is.GetUID() != pod.UID || is.GetDeletionTimestamp() != nil) {
		return nil, nil //nolint:nilnil // there is none that could stay
	}
	return is, err
}

func (q *inquiry) read(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	u := q.scaler.object(ref)
	if err := q.scaler.client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, u); err != nil {
		return nil, explain(ref, "read", err)
	}
	return u, nil
}

// climb finds the owners between a pod and the target, and gives the pod's own.
func (q *inquiry) climb(ctx context.Context, pod *unstructured.Unstructured) (types.UID, error) {
	below, scaled := pod, false
	first := metav1.GetControllerOf(pod)
	for range maxOwners {
		by := metav1.GetControllerOf(below)
		if by == nil {
			break
		}
		if _, ok := q.owners[by.UID]; ok {
			return first.UID, nil
		}
		o := owner{uid: by.UID, ref: Ref{v1alpha1.ScaleTargetRef{APIVersion: by.APIVersion, Kind: by.Kind, Name: by.Name}, q.ref.Namespace}}
		if Same(o.ref.ScaleTargetRef, q.ref.ScaleTargetRef) {
			o.scales = !scaled
			q.owners[o.uid] = o
			return first.UID, nil
		}
		is, err := q.read(ctx, o.ref)
		switch {
		case errors.Is(err, ErrForbidden):
			return "", fmt.Errorf("%w: the operator %w", ErrUntold, err)
		case err != nil:
			return "", err
		}
		if c := metav1.GetControllerOf(is); c != nil {
			o.by = c.UID
		}
		if _, has, _ := unstructured.NestedInt64(is.Object, "spec", "replicas"); has && !scaled {
			o.scales, scaled = true, true
		}
		q.owners[o.uid] = o
		below = is
	}
	return "", fmt.Errorf("%w: Pod %s/%s doesn't belong to %s by its ownerReferences", ErrUntold, q.ref.Namespace, pod.GetName(), q.ref)
}

// told says whether an owner has done all that the target's scale asks of it, after
// those above it have. The order matters: what one above has said was written to the
// one below before.
func (q *inquiry) told(ctx context.Context, uid types.UID) error {
	if err, ok := q.found[uid]; ok {
		return err
	}
	o, ok := q.owners[uid]
	err := fmt.Errorf("%w: its owner isn't known", ErrUntold)
	if ok {
		err = nil
		if o.by != "" {
			err = q.told(ctx, o.by)
		}
		if err == nil {
			err = q.ask(ctx, o)
		}
	}
	q.found[uid] = err
	return err
}

// ask asks one owner.
func (q *inquiry) ask(ctx context.Context, o owner) error {
	is, err := q.read(ctx, o.ref)
	if err != nil {
		return err
	}
	if is.GetUID() != o.uid || is.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s is being deleted", o.ref)
	}
	wanted, has, _ := unstructured.NestedInt64(is.Object, "spec", "replicas")
	pods, _, _ := unstructured.NestedInt64(is.Object, "status", "replicas")
	if Same(o.ref.ScaleTargetRef, q.ref.ScaleTargetRef) {
		// It may have its number of replicas anywhere.
		scale, err := q.scaler.Get(ctx, q.ref)
		if err != nil {
			return err
		}
		wanted, has, pods = int64(scale.Spec.Replicas), true, int64(scale.Status.Replicas)
	}
	if !has && o.ref.isServer() {
		return nil // nothing of it depends on a scale
	}
	if has && wanted == 0 {
		return fmt.Errorf("%s wants no pods yet", o.ref)
	}
	seen, tells := observedGeneration(is)
	switch {
	case !tells:
		return fmt.Errorf("%w: %s has no status.observedGeneration", ErrUntold, o.ref)
	case seen < is.GetGeneration():
		return fmt.Errorf("the controller of %s hasn't taken in that it wants %d replicas", o.ref, wanted)
	case o.scales && pods > wanted:
		return fmt.Errorf("%s has %d pods and wants %d", o.ref, pods, wanted)
	}
	return nil
}

// observedGeneration is the generation that an object's controller has seen; false: it
// doesn't tell. Argo's Rollouts tell in a string.
func observedGeneration(u *unstructured.Unstructured) (int64, bool) {
	value, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "observedGeneration")
	if !ok {
		return 0, false
	}
	switch seen := value.(type) {
	case int64:
		return seen, true
	case string:
		n, err := strconv.ParseInt(seen, 10, 64)
		return n, err == nil
	}
	return 0, false
}
