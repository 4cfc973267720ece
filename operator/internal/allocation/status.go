package allocation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/informer"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/text"
)

const (
	// writeTime bounds one write. It is shorter than what is left of the lease when a leader that can't
	// renew it gives up, so that no write of an earlier leader comes after what the next one reads.
	writeTime = 4 * time.Second
	// A write that failed is tried again after minRetry, and twice as long each time up to maxRetry.
	minRetry = 10 * time.Millisecond
	maxRetry = 10 * time.Second
)

func (a *Allocator) next(ctx context.Context) bool {
	key, shutdown := a.queue.Get()
	if shutdown {
		return false
	}
	defer a.queue.Done(key)
	err := a.write(ctx, key)
	switch {
	case err == nil:
		a.queue.Forget(key)
		return true
	case !apierrors.IsConflict(err) && !errors.Is(err, errBehind) && ctx.Err() == nil:
		a.Log.Error(err, "An Allocation wasn't answered, and is tried again")
	}
	a.queue.AddRateLimited(key)
	return true
}

// errBehind is for a Server that an Allocation has, and that the cache doesn't show yet.
var errBehind = errors.New("the cache doesn't have the Server yet")

// write writes what was decided of an Allocation.
func (a *Allocator) write(ctx context.Context, key types.NamespacedName) error {
	o, d := a.book.Decided(key)
	if d == nil || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if d.Unsure {
		if err := a.sure(ctx, o); err != nil {
			return err
		}
	}
	err := a.apply(ctx, o, d)
	if apierrors.IsNotFound(err) {
		// The cache shows that, too, unless it did before a list had this one.
		a.book.DeleteAllocation(o)
		return nil
	}
	return err
}

// sure is errBehind where an Allocation has its Server still.
func (a *Allocator) sure(ctx context.Context, o *v1alpha1.Allocation) error {
	if a.Live == nil {
		return nil
	}
	var srv v1alpha1.Server
	err := a.Live.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Status.ServerName}, &srv)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read Server %s/%s: %w", o.Namespace, o.Status.ServerName, err)
	case book.Has(&o.Status, &srv):
		return errBehind
	}
	return nil
}

// apply writes a decision to the API server.
func (a *Allocator) apply(ctx context.Context, o *v1alpha1.Allocation, d *book.Decision) error {
	key := client.ObjectKeyFromObject(o)
	if d.Delete {
		err := a.Client.Delete(ctx, o, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion})
		return wrapf(err, "delete Allocation %s", key)
	}
	after := d.Status(&o.Status)
	after.ObservedGeneration = o.Generation
	if is := meta.FindStatusCondition(after.Conditions, conditions.Allocated); !d.Observed {
		condition.SetAll(&after.Conditions, o.Generation, metav1.NewTime(a.Now()), conditionOf(d))
	} else if is != nil {
		is.ObservedGeneration = o.Generation
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": o.ResourceVersion, "uid": o.UID},
		"status":   after,
	})
	if err != nil {
		return fmt.Errorf("encode the status of Allocation %s: %w", key, err)
	}
	written := &v1alpha1.Allocation{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := a.Client.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("write the status of Allocation %s: %w", key, err)
	}
	written.ManagedFields = nil
	a.book.Written(written)
	if !d.Observed {
		a.tell(written, d)
	}
	return nil
}

// conditionOf is the condition Allocated.
func conditionOf(d *book.Decision) metav1.Condition {
	switch d.State {
	case v1alpha1.AllocationAllocated:
		return condition.True(conditions.Allocated, d.Reason, "%s", d.Message)
	case v1alpha1.AllocationPending:
		return condition.Unknown(conditions.Allocated, d.Reason, "%s", d.Message)
	default:
		return condition.False(conditions.Allocated, d.Reason, "%s", d.Message)
	}
}

// tell counts what was written. Only what went wrong with a Server is an event: there may be hundreds
// of Allocations a second, and each has its own status.
func (a *Allocator) tell(o *v1alpha1.Allocation, d *book.Decision) {
	switch d.State {
	case v1alpha1.AllocationAllocated:
		a.Metrics.Allocated(d.Waited)
	case v1alpha1.AllocationRefused:
		a.Metrics.Refused()
	case v1alpha1.AllocationExpired:
		a.Metrics.Expired()
		kind := corev1.EventTypeWarning
		if d.Reason == reasons.TimeOver {
			kind = corev1.EventTypeNormal
		}
		kit.Emit(a.Events, o, kit.Notice{Type: kind, Reason: d.Reason, Action: "Expire", Note: d.Message})
	case v1alpha1.AllocationPending:
	}
}

// reasonOf says in words why a target isn't woken.
func reasonOf(err error) string {
	for _, permanent := range []error{informer.ErrNeverWakes, informer.ErrKeptAsleep, informer.ErrUnknownService, informer.ErrTargetTaken} {
		if errors.Is(err, permanent) {
			return permanent.Error()
		}
	}
	if errors.Is(err, target.ErrNotFound) || errors.Is(err, target.ErrNotScalable) || errors.Is(err, target.ErrForbidden) {
		return text.Bounded(err.Error())
	}
	return "the API server can't be reached or is too slow"
}

func wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
