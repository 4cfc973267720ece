package gameserver

import (
	"context"
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/gameserver/planner"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/refusal"
)

// outcome is the result of applying a plan.
type outcome struct {
	// ports are the host ports of the Pod that was to be created.
	ports portPick
	// refused is the API server's reason for refusing the Pod, which the user has to fix.
	refused error
	// unguarded is set where the API server refuses the namespace's PodDisruptionBudget.
	unguarded bool
	// turn is set where the pass has its Server's turn.
	turn bool
}

// portPick is the result of picking a Server's host ports.
type portPick struct {
	// numbers are in the order of spec.ports.
	numbers []int32
	// trouble is why there are none, so that no Pod can be created.
	trouble error
}

// apply applies a plan: it takes its one action on the Pod.
func (r *Reconciler) apply(ctx context.Context, s *v1alpha1.Server, o planner.Observed, p planner.Plan) (done outcome, err error) {
	if o.Orphan != nil {
		// Deleted after a live read: the Server in this cache may be the earlier one of the
		// name.
		if err := r.deleteOrphan(ctx, o.Orphan); err != nil {
			return done, err
		}
	}
	if p.Create && len(s.Spec.Storage) > 0 {
		end, busy, err := r.takeDisks(ctx, s)
		if busy != nil || err != nil {
			done.refused = busy
			return done, err
		}
		defer end()
	}
	if p.Create {
		done.ports.numbers, done.ports.trouble = r.picker.Pick(s)
		p.Create = done.ports.trouble == nil
	}
	if o.Pod != nil {
		if err := r.guard(ctx, s, &done); err != nil {
			return done, err
		}
	}
	if p.RestoreKey != "" && r.restoreKey(ctx, s, p.RestoreKey) && !planner.GameRunning(s, o.Pod) {
		p.Erase = true // another Pod gets another key, or a token in a volume
	}
	if p.RestoreCode && r.restoreCode(ctx, s, o.Pod) {
		p.Remove = true // its sidecar began with the code before
	}
	switch {
	case p.Create:
		done.refused, err = r.createPod(ctx, s, done.ports.numbers)
		if err == nil && done.refused == nil {
			// After the Pod, since a player waits for that, and before anybody can play in it.
			err = r.guard(ctx, s, &done)
		}
	case p.Restart:
		err = r.markRestart(ctx, o.Pod)
	case p.Remove:
		err = r.deletePod(ctx, o.Pod)
	case p.Erase:
		// But not if it has got a node, or changed otherwise, since it was observed.
		err = r.deletePod(ctx, o.Pod, client.GracePeriodSeconds(0), client.Preconditions{ResourceVersion: &o.Pod.ResourceVersion})
		if err == nil && p.Refused {
			r.picker.Refuse(s)
		}
	case p.Retire != "":
		// Somebody may have undone a drain meanwhile.
		err = r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
		err = wrapf(client.IgnoreNotFound(err), "delete Server %s", client.ObjectKeyFromObject(s))
	case o.Pod != nil && o.Pod.Labels[wellknown.DeletionAllowedLabel] != strconv.FormatBool(p.Evictable):
		err = r.markPod(ctx, o.Pod, p.Evictable)
	}
	if err == nil && o.Pod != nil && p.Changed && len(s.Spec.Storage) > 0 && planner.Wanted(s) {
		var busy *busyError
		switch _, err = r.keepClaims(ctx, s); {
		case refusal.Is(err):
			kit.Emit(r.Events, s, kit.Warning("DiskNotChanged", "KeepDisk", "The disks stay as they are: %s", refusal.Words(err)))
			err = nil
		case errors.As(err, &busy):
			err = nil // the next Pod waits for it
		}
	}
	return done, err
}

// guard keeps the namespace's PodDisruptionBudget. Where the API server refuses that, evictions are still
// refused by the webhook, and the game goes on.
func (r *Reconciler) guard(ctx context.Context, s *v1alpha1.Server, done *outcome) error {
	err := r.keepGuard(ctx, s.Namespace)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // nothing is made there any more, and what is there is to end
	case !refusal.Is(err):
		return err
	}
	done.unguarded = true
	kit.Emit(r.Events, s, kit.Warning("NotGuarded", "KeepGuard", "No PodDisruptionBudget keeps the Pod from being evicted: %s", refusal.Words(err)))
	return nil
}
