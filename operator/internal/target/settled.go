package target

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=get
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers;fleets;gametypes,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=get

// ErrUntold means that it can't be found out whether pods outlive a scale: the controllers
// between them and the target don't report what they have seen, or may not be asked.
var ErrUntold = errors.New("unknown whether the scale was taken in")

// maxOwners bounds how many owners there are between a pod and its target.
const maxOwners = 5

// PodKey names one pod.
type PodKey struct {
	Name string
	UID  types.UID
}

// Settlement is what is known of pods that existed before the target's last scale.
type Settlement struct {
	// Stay are the pods that outlive it. Untold are those of which it can't be found out.
	Stay, Untold []types.UID
	// Waits is what is missing for one of the other pods; nil where they only have to end.
	Waits error
}

// Settled asks which pods outlive the target's current scale: they aren't being deleted, and
// each controller between them and the target has reported that it has seen its wanted number
// of replicas, and deletes no more pods for that.
func (s *Scaler) Settled(ctx context.Context, ref Ref, pods []PodKey) Settlement {
	q := &inquiry{scaler: s, ref: ref, chains: map[types.UID]chain{}, answers: map[types.UID]answer{}}
	var out Settlement
	for _, pod := range pods {
		stays, err := q.outlives(ctx, pod)
		switch {
		case errors.Is(err, ErrUntold):
			out.Untold = append(out.Untold, pod.UID)
		case stays:
			out.Stay = append(out.Stay, pod.UID)
		}
		if out.Waits == nil {
			out.Waits = err
		}
	}
	return out
}

// inquiry is one call of Settled. Each object is read once.
type inquiry struct {
	scaler *Scaler
	ref    Ref
	// chains are by the UIDs of the pods' owners.
	chains  map[types.UID]chain
	answers map[types.UID]answer
}

// chain has the controllers that decide on a pod, the target last.
type chain struct {
	owners []owner
	// stranger is set where the pod isn't the target's: no scale of the target ends it.
	stranger bool
	err      error
}

// owner is the controller of a pod, or of another owner.
type owner struct {
	ref Ref
	uid types.UID
}

// answer is an owner's report.
type answer struct {
	err error
	// first and end are the numbers of the pods that a StatefulSet keeps.
	first, end int64
}

// outlives reports whether a pod stays; an error is why that isn't known.
func (q *inquiry) outlives(ctx context.Context, pod PodKey) (bool, error) {
	is, err := q.pod(ctx, pod)
	if err != nil || is == nil {
		return false, err
	}
	c := q.chainOf(ctx, is)
	if c.err != nil || c.stranger {
		return c.stranger, c.err
	}
	// An owner reports only after it has written to the one below it, so the target is read
	// first.
	for i, o := range slices.Backward(c.owners) {
		if err := q.ask(ctx, o, i == 0).err; err != nil {
			return false, err
		}
	}
	if nearest := c.owners[0]; nearest.ref.is("apps", "StatefulSet") {
		kept := q.answers[nearest.uid]
		if n := ordinal(pod.Name); n < kept.first || n >= kept.end {
			return false, nil
		}
	}
	// A pod that is to end was marked before its controller reported that it is done.
	is, err = q.pod(ctx, pod)
	return is != nil, err
}

// ordinal is the number of a StatefulSet's pod; -1 where it has none.
func ordinal(name string) int64 {
	n, err := strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 32)
	if err != nil {
		return -1
	}
	return n
}

// pod reads a pod; nil: it is gone or being deleted.
func (q *inquiry) pod(ctx context.Context, pod PodKey) (*unstructured.Unstructured, error) {
	ref := Ref{v1alpha1.ScaleTargetRef{APIVersion: "v1", Kind: "Pod", Name: pod.Name}, q.ref.Namespace}
	is, err := q.read(ctx, ref)
	if errors.Is(err, ErrNotFound) || err == nil && (is.GetUID() != pod.UID || is.GetDeletionTimestamp() != nil) {
		return nil, nil //nolint:nilnil // there is none that could stay
	}
	return is, err
}

func (q *inquiry) read(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	u, err := q.scaler.read(ctx, ref)
	switch {
	case err == nil:
		return u, nil
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w: the operator may not read %s, grant it get on that kind", ErrUntold, ref)
	case apierrors.IsNotFound(err):
		return nil, explain(ref, "read", err)
	}
	return nil, fmt.Errorf("read %s: %w", ref, err)
}

// chainOf finds the owners between a pod and the target.
func (q *inquiry) chainOf(ctx context.Context, pod *unstructured.Unstructured) chain {
	first := metav1.GetControllerOf(pod)
	if first == nil {
		return q.ownerless(pod)
	}
	c, ok := q.chains[first.UID]
	if !ok {
		c = q.climb(ctx, pod)
		q.chains[first.UID] = c
	}
	return c
}

func (q *inquiry) climb(ctx context.Context, pod *unstructured.Unstructured) chain {
	var c chain
	below := pod
	for range maxOwners {
		by := metav1.GetControllerOf(below)
		if by == nil {
			break
		}
		o := owner{uid: by.UID, ref: Ref{v1alpha1.ScaleTargetRef{APIVersion: by.APIVersion, Kind: by.Kind, Name: by.Name}, q.ref.Namespace}}
		c.owners = append(c.owners, o)
		if Same(o.ref.ScaleTargetRef, q.ref.ScaleTargetRef) {
			return c
		}
		if below, c.err = q.read(ctx, o.ref); c.err != nil {
			return c
		}
	}
	return q.ownerless(pod)
}

// ownerless is the chain of a pod whose ownerReferences don't lead to the target. The known
// kinds own all their pods.
func (q *inquiry) ownerless(pod *unstructured.Unstructured) chain {
	if q.ref.reportsProgress() {
		return chain{stranger: true}
	}
	return chain{err: fmt.Errorf("%w: Pod %s/%s doesn't belong to %s by its ownerReferences", ErrUntold, q.ref.Namespace, pod.GetName(), q.ref)}
}

// reportsProgress reports whether the kind is one that reports what it has seen and whose
// controller's way with pods is known.
func (r Ref) reportsProgress() bool {
	return r.ofDormouse() || r.is("apps", "Deployment") || r.is("apps", "ReplicaSet") || r.is("apps", "StatefulSet") || r.is("", "ReplicationController")
}

func (r Ref) is(group, kind string) bool {
	return r.Kind == kind && schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group == group
}

// ask asks an owner, once, whether it has done all that its spec asks for. Nearest is set for
// the owner of the pod itself.
func (q *inquiry) ask(ctx context.Context, o owner, nearest bool) answer {
	if a, ok := q.answers[o.uid]; ok {
		return a
	}
	a, err := q.asked(ctx, o, nearest)
	a.err = err
	q.answers[o.uid] = a
	return a
}

// lacks is an error about what an owner lacks. For an unknown kind it can't be found out
// whether that will ever come.
func (o owner) lacks(format string, args ...any) error {
	err := fmt.Errorf("%s "+format, append([]any{o.ref}, args...)...)
	if o.ref.reportsProgress() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUntold, err)
}

func (q *inquiry) asked(ctx context.Context, o owner, nearest bool) (answer, error) {
	is, err := q.read(ctx, o.ref)
	if err != nil {
		return answer{}, err
	}
	if is.GetUID() != o.uid || is.GetDeletionTimestamp() != nil {
		return answer{}, o.lacks("is being deleted")
	}
	if o.ref.is(v1alpha1.GroupVersion.Group, "Server") {
		if drains, _, _ := unstructured.NestedBool(is.Object, "spec", "drain"); drains {
			return answer{}, o.lacks("drains")
		}
		if !Same(o.ref.ScaleTargetRef, q.ref.ScaleTargetRef) {
			return answer{}, nil // nothing else of it depends on a scale
		}
	}
	wanted, has, _ := unstructured.NestedInt64(is.Object, "spec", "replicas")
	pods, _, _ := unstructured.NestedInt64(is.Object, "status", "replicas")
	if Same(o.ref.ScaleTargetRef, q.ref.ScaleTargetRef) && emptyWorkload(o.ref) == nil {
		// It may have its number of replicas anywhere.
		scale, err := q.scaler.Get(ctx, q.ref)
		if err != nil {
			return answer{}, err
		}
		wanted, has, pods = int64(scale.Spec.Replicas), true, int64(scale.Status.Replicas)
	}
	seen, tells := observedGeneration(is)
	switch {
	case has && wanted == 0:
		// The owner above has reported, and may still not have seen its own last write: a
		// Deployment's controller whose watch of ReplicaSets is late takes the wake for done.
		return answer{}, o.lacks("wants no pods yet")
	case !tells:
		return answer{}, fmt.Errorf("%w: %s has no status.observedGeneration", ErrUntold, o.ref)
	case seen < is.GetGeneration():
		return answer{}, o.lacks("has a controller that hasn't taken in that it wants %d replicas", wanted)
	case o.ref.is("apps", "StatefulSet"):
		start, _, _ := unstructured.NestedInt64(is.Object, "spec", "ordinals", "start")
		return answer{first: start, end: start + wanted}, nil
	case nearest && pods > wanted:
		return answer{}, o.lacks("has %d pods and wants %d", pods, wanted)
	}
	return answer{}, nil
}

// observedGeneration is the generation that an object's controller has seen; false: it doesn't
// report one. Argo's Rollouts have it as a string.
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
